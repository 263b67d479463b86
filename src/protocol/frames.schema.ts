import { z } from "zod";
import { clientId, commandEnvelope, parseWith } from "./commands.schema.ts";
import type { ClientFrame } from "./frames.ts";
import { isJsonObject } from "./json.ts";
import { BrokerError } from "./problems.ts";
import { CAPABILITIES } from "./registration.ts";

/** `after` of a subscription, a page or a stream. */
const cursor = z.union([z.literal("head"), z.int().min(0)]);

const hookMatcher = z.strictObject({
  matcher: z.string().max(1024).optional(),
  hookCallbackIds: z.array(clientId).min(1).max(64),
  timeout: z.number().positive().max(3600).optional(),
});

const registration = z.strictObject({
  owner: z.string().min(1).max(64).optional(),
  hooks: z.record(z.string().min(1).max(64), z.array(hookMatcher).max(64)).optional(),
  mcp_servers: z
    .array(z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "must be names of letters, digits, _ and -"))
    .max(32)
    .optional(),
});

const frames = {
  auth: z.strictObject({ type: z.literal("auth"), token: z.string().min(1).max(4096) }),
  subscribe: z.strictObject({
    type: z.literal("subscribe"),
    session_id: clientId,
    after: cursor.optional(),
    previews: z.boolean().optional(),
    capabilities: z.array(z.enum(CAPABILITIES)).max(16).optional(),
    register: registration.optional(),
  }),
  unsubscribe: z.strictObject({ type: z.literal("unsubscribe"), session_id: clientId }),
  watch: z.strictObject({ type: z.literal("watch") }),
  command: z.strictObject({ type: z.literal("command"), session_id: clientId, ...commandEnvelope.shape }),
  ping: z.strictObject({ type: z.literal("ping") }),
};

const isFrameType = (type: unknown): type is keyof typeof frames =>
  typeof type === "string" && Object.hasOwn(frames, type);

/** One text frame of a client (contract 5). A command's payload is checked by parseCommand. @throws BrokerError bad_request */
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
  return parseWith<ClientFrame>(frames[type] as z.ZodType<ClientFrame>, value);
}
