import { z } from "zod";
import { clientId, parseWith } from "./commands.schema.ts";

const PERMISSION_MODES = ["default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto"] as const;

const metadata = z
  .record(z.string().min(1).max(64), z.string().max(1024))
  .refine((map) => Object.keys(map).length <= 32, {
    message: "has more than 32 entries",
  });
const name = z.string().min(1).max(200);
const model = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\s-][^\s]*$/, "must be a model name");

const CONTROL_CHARACTERS = /\p{Cc}/u;
const git = z.strictObject({
  // git itself refuses a name of nothing but punctuation, at the first commit and with a riddle.
  name: z
    .string()
    .max(200)
    .regex(/^[^<>]*[\p{L}\p{N}][^<>]*$/u, "must have a letter or digit, and no < or >")
    .refine((value) => !CONTROL_CHARACTERS.test(value), "must be one line of text"),
  email: z
    .string()
    .max(254)
    .regex(/^[^\s<>\p{Cc}]+$/u, "must be an address without spaces, < or >"),
  attribution: z.boolean().optional(),
});

const serverValues = z.record(z.string().min(1).max(256), z.string().max(65_536));
const stdioServer = z.strictObject({
  type: z.literal("stdio").optional(),
  command: z.string().min(1).max(4096),
  args: z.array(z.string().max(65_536)).max(128).optional(),
  env: serverValues.optional(),
  alwaysLoad: z.boolean().optional(),
});
const remoteServer = z.strictObject({
  type: z.enum(["http", "sse"]),
  url: z.url({ protocol: /^https?$/, error: "must be an http or https address" }).max(4096),
  headers: serverValues.optional(),
  alwaysLoad: z.boolean().optional(),
});
const mcpServers = z
  .record(
    z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, _ or -"),
    z.discriminatedUnion("type", [stdioServer, remoteServer], {
      error: (issue) =>
        issue.code === "invalid_union"
          ? "must be stdio, http or sse (a client registers its own servers when it subscribes)"
          : undefined,
    }),
  )
  .refine((servers) => Object.keys(servers).length <= 32, { message: "has more than 32 servers" });

const agent = z.strictObject({
  model: model.optional(),
  permission_mode: z.enum(PERMISSION_MODES).optional(),
  args: z.array(z.string().max(65_536)).max(64).optional(),
  env: z.record(z.string(), z.string().max(65_536)).optional(),
  system_prompt: z.string().max(262_144).optional(),
  append_system_prompt: z.string().max(262_144).optional(),
  include_partial_messages: z.boolean().optional(),
  git: git.optional(),
  mcp_servers: mcpServers.optional(),
  file_checkpointing: z.boolean().optional(),
});

const LABEL_NAME = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/;
const LABEL_VALUE = /^[A-Za-z0-9._/-]{0,63}$/;
const LABELS_AT_MOST = 16;
/** What a runner says of itself, and what a session asks of one. */
export const runnerLabels = z
  .record(
    z.string().regex(LABEL_NAME, "must be 1 to 63 letters, digits, . _ / or -, beginning with a letter or digit"),
    z.string().regex(LABEL_VALUE, "must be up to 63 letters, digits, . _ / or -"),
  )
  .refine((labels) => Object.keys(labels).length <= LABELS_AT_MOST, {
    message: `has more than ${LABELS_AT_MOST} labels`,
  });
const runner = z.strictObject({
  labels: runnerLabels.default({}),
  when_away: z.enum(["wait", "fail"]).default("wait"),
});

/** Seconds that an idle agent is kept; 0 = for ever. */
const idleTimeout = z.int("must be a whole number of seconds").min(0).max(2_592_000);

const cwd = z.string().min(1).max(4096);
/** The CLI writes its uuids in lower case. */
const at = z.uuid("must be the uuid of a message").transform((uuid) => uuid.toLowerCase());

const newSession = z.strictObject({
  agent: agent.optional(),
  cwd: cwd.optional(),
  name: name.optional(),
  metadata: metadata.optional(),
  prompt: z.string().min(1).optional(),
  resume_from: z.strictObject({ session_id: clientId, at: at.optional() }).optional(),
  idle_timeout_s: idleTimeout.optional(),
  on_crash: z.enum(["fail", "continue"]).optional(),
  runner: runner.optional(),
});

/** How the agent of a session is to be started (contract 4). */
export type AgentOptions = z.infer<typeof agent>;
/** The body of POST /v1/sessions. */
export type NewSession = z.infer<typeof newSession>;

/** @throws BrokerError bad_request */
export const parseNewSession = (body: unknown): NewSession => parseWith(newSession, body ?? {});

const newFork = z.strictObject({ at: at.optional(), name: name.optional(), cwd: cwd.optional() });
/** The body of POST …/fork. */
export type NewFork = z.infer<typeof newFork>;

/** @throws BrokerError bad_request */
export const parseNewFork = (body: unknown): NewFork => parseWith(newFork, body ?? {});

const sessionPatch = z.strictObject({
  name: name.nullable().optional(),
  metadata: metadata.optional(),
  idle_timeout_s: idleTimeout.optional(),
});
/** The body of PATCH /v1/sessions/{id}; `metadata` replaces the whole. */
export type SessionPatch = z.infer<typeof sessionPatch>;

/** @throws BrokerError bad_request */
export const parseSessionPatch = (body: unknown): SessionPatch => parseWith(sessionPatch, body);

const newTurn = z.strictObject({
  id: clientId.optional(),
  text: z.string().min(1).optional(),
  message: z.record(z.string(), z.unknown()).optional(),
  wait_s: z.number().min(0).max(3600).optional(),
});
/** The body of POST …/turns: `text` or `message`, one of them. */
export type NewTurn = z.infer<typeof newTurn>;

/** @throws BrokerError bad_request */
export function parseNewTurn(body: unknown): NewTurn {
  return parseWith(
    newTurn.refine((turn) => (turn.text === undefined) !== (turn.message === undefined), {
      message: "give exactly one of text and message",
      path: ["text"],
    }),
    body,
  );
}
