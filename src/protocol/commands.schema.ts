import { z } from "zod";
import type { Command, ControlCancelRequest, ControlRequest, ControlResponse, UserMessage } from "./commands.ts";
import { COMMAND_TYPES, DELIVERIES } from "./events.ts";
import { refuseDeepJson } from "./json.ts";
import { ID_LIMIT_CHARS } from "./limits.ts";
import { BrokerError } from "./problems.ts";

/** An id of a client's own making. */
export const clientId = z.string().min(1).max(ID_LIMIT_CHARS);

const CONTENT_BLOCKS = ["text", "image", "document", "search_result"];
const contentBlock = z
  .looseObject({ type: z.string() })
  .refine((block) => CONTENT_BLOCKS.includes(block.type), {
    message: `must be one of ${CONTENT_BLOCKS.join(", ")}`,
    path: ["type"],
  })
  .refine((block) => block.type !== "text" || typeof block.text === "string", {
    message: "must be a string",
    path: ["text"],
  });

const userMessage = z.looseObject({
  type: z.literal("user").default("user"),
  message: z.looseObject({
    role: z.literal("user"),
    content: z.union([z.string().min(1), z.array(contentBlock).min(1)]),
  }),
  uuid: z.uuid().optional(),
  parent_tool_use_id: z.null().optional(),
});

const textMessage = z.strictObject({ text: z.string().min(1), uuid: z.uuid().optional() });

const controlRequest = z.looseObject({
  type: z.literal("control_request").default("control_request"),
  request_id: clientId,
  request: z.looseObject({ subtype: z.string().min(1).max(ID_LIMIT_CHARS) }),
});

const controlResponse = z.looseObject({
  type: z.literal("control_response").default("control_response"),
  response: z.discriminatedUnion("subtype", [
    z.looseObject({ subtype: z.literal("success"), request_id: clientId, response: z.looseObject({}).optional() }),
    z.looseObject({ subtype: z.literal("error"), request_id: clientId, error: z.string() }),
  ]),
});

const controlCancel = z.looseObject({
  type: z.literal("control_cancel_request").default("control_cancel_request"),
  request_id: clientId,
});

/** The command frame without its `type` and `session_id`; also the body of POST …/commands. */
export const commandEnvelope = z.strictObject({
  id: clientId,
  event_type: z.enum(COMMAND_TYPES),
  payload: z.record(z.string(), z.unknown()),
  delivery: z.enum(DELIVERIES).optional(),
});

/** @throws BrokerError bad_request naming the first wrong field, prefixed by `at` */
export function parseWith<T>(schema: z.ZodType<T>, value: unknown, at = ""): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = [at, ...(issue?.path ?? [])].filter((part) => part !== "").join(".");
  const unknown = issue?.code === "unrecognized_keys" ? ` (${issue.keys.join(", ")})` : "";
  const field = path === "" ? (issue?.code === "unrecognized_keys" ? (issue.keys[0] ?? "body") : "body") : path;
  throw new BrokerError(
    "bad_request",
    `${field}: ${issue?.message ?? "is not valid"}${unknown}. Correct it and send again.`,
    {
      details: { field },
    },
  );
}

function parseQuery(payload: Readonly<Record<string, unknown>>): UserMessage {
  if ("text" in payload && !("message" in payload)) {
    const { text, uuid } = parseWith(textMessage, payload, "payload");
    return { type: "user", message: { role: "user", content: text }, ...(uuid !== undefined && { uuid }) };
  }
  parseWith(userMessage, payload, "payload");
  // The client's own object goes on, not zod's copy: unknown fields and key order are kept (contract 5, promise 4 in the other direction).
  return { ...payload, type: "user" } as unknown as UserMessage;
}

/** One command of a client, checked so far that no line it leads to can kill the CLI (spec/claude-protocol 4.2). @throws BrokerError bad_request */
export function parseCommand(input: unknown): Command {
  const { id, event_type, payload, delivery } = parseWith(commandEnvelope, input);
  refuseDeepJson(payload, "payload");
  if (delivery !== undefined && event_type !== "query") {
    throw new BrokerError("bad_request", "delivery: belongs to a query only. Leave it out.", {
      details: { field: "delivery" },
    });
  }
  switch (event_type) {
    case "query":
      return { id, event_type, payload: parseQuery(payload), delivery: delivery ?? "after_turn" };
    case "control_request":
      return {
        id,
        event_type,
        payload: parseWith<ControlRequest>(controlRequest as z.ZodType<ControlRequest>, payload, "payload"),
      };
    case "control_response":
      return {
        id,
        event_type,
        payload: parseWith<ControlResponse>(controlResponse as z.ZodType<ControlResponse>, payload, "payload"),
      };
    case "control_cancel_request":
      return {
        id,
        event_type,
        payload: parseWith<ControlCancelRequest>(controlCancel as z.ZodType<ControlCancelRequest>, payload, "payload"),
      };
  }
}
