import { z } from "zod";
import { clientId, commandEnvelope, parseWith } from "./commands.schema.ts";
import type { ClientFrame } from "./frames.ts";
import { isJsonObject } from "./json.ts";
import { BrokerError } from "./problems.ts";

/** `after` of a subscription, a page or a stream. */
const cursor = z.union([z.literal("head"), z.int().min(0)]);

/** Parts of the contract that later versions serve: present means `not_available`, never a silent half. */
const LATER_FIELDS = ["capabilities", "register"];

const frames = {
  auth: z.strictObject({ type: z.literal("auth"), token: z.string().min(1).max(4096) }),
  subscribe: z.strictObject({
    type: z.literal("subscribe"),
    session_id: clientId,
    after: cursor.optional(),
    previews: z.boolean().optional(),
  }),
  unsubscribe: z.strictObject({ type: z.literal("unsubscribe"), session_id: clientId }),
  watch: z.strictObject({ type: z.literal("watch") }),
  command: z.strictObject({ type: z.literal("command"), session_id: clientId, ...commandEnvelope.shape }),
  ping: z.strictObject({ type: z.literal("ping") }),
};

const isFrameType = (type: unknown): type is keyof typeof frames =>
  typeof type === "string" && Object.hasOwn(frames, type);

/** @throws BrokerError not_available naming the field */
export function refuseLater(value: unknown, fields: readonly string[], at = ""): void {
  if (!isJsonObject(value)) return;
  const field = fields.find((name) => value[name] !== undefined);
  if (field === undefined) return;
  throw new BrokerError("not_available", `${at}${field} is not served by this version; leave it out.`, {
    details: { field: `${at}${field}` },
  });
}

/** One text frame of a client (contract 5). A command's payload is checked by parseCommand. @throws BrokerError bad_request, not_available */
export function parseClientFrame(text: string): ClientFrame {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new BrokerError("bad_request", "The frame is not JSON. Send one JSON object per text frame.", {
      cause,
      details: { field: "frame" },
    });
  }
  const type = isJsonObject(value) ? value.type : undefined;
  if (!isFrameType(type)) {
    throw new BrokerError("bad_request", `type: must be one of ${Object.keys(frames).join(", ")}.`, {
      details: { field: "type" },
    });
  }
  if (type === "subscribe") refuseLater(value, LATER_FIELDS);
  return parseWith<ClientFrame>(frames[type] as z.ZodType<ClientFrame>, value);
}
