import { z } from "zod";
import { parseWith } from "./commands.schema.ts";
import { isJsonObject } from "./json.ts";

/** Bodies and queries of Runloop's API (spec 1.2, 1.4). Fields that we do not know are left alone: its clients may be newer than we are. */
const labels = z.record(z.string(), z.string());
const name = z.string().nullish();
const axon = z.object({ name, metadata: labels.nullish() });
const axonPatch = z.object({ metadata: labels.nullish() });
const publication = z.object({
  event_type: z.string().min(1).max(200),
  origin: z.enum(["EXTERNAL_EVENT", "AGENT_EVENT", "USER_EVENT", "SYSTEM_EVENT"]),
  payload: z.string(),
  source: z.string().max(256),
});

const LIMIT = 5_000;
const limit = z
  .string()
  .regex(/^\d{1,9}$/, "must be a whole number")
  .transform(Number)
  .refine((value) => value >= 1 && value <= LIMIT, `must be from 1 to ${LIMIT}`)
  .default(20);
const flag = z
  .enum(["true", "false"])
  .default("true")
  .transform((text) => text === "true");
const sequence = z
  .string()
  .regex(/^\d{1,15}$/, "must be a sequence number")
  .transform(Number);
const text = z.string().min(1).max(1_024);
const axonList = z.object({
  limit,
  starting_after: text.optional(),
  id: text.optional(),
  name: text.optional(),
  search: text.optional(),
  include_total_count: flag,
});
const eventList = z.object({ limit, starting_after: sequence.optional(), include_total_count: flag });
const subscription = z.object({ after_sequence: sequence.default(0) });

const idle = z.object({ idle_time_seconds: z.number().int().min(1), on_idle: z.enum(["shutdown", "suspend"]) });
const launch = z.looseObject({
  launch_commands: z.array(z.string()).nullish(),
  keep_alive_time_seconds: z.number().int().min(1).nullish(),
  after_idle: idle.nullish(),
  lifecycle: z
    .looseObject({
      after_idle: idle.nullish(),
      resume_triggers: z.looseObject({ axon_event: z.boolean().nullish() }).nullish(),
    })
    .nullish(),
});
const mount = z.looseObject({
  type: z.string(),
  axon_id: z.string().optional(),
  protocol: z.string().nullish(),
  agent_binary: z.string().nullish(),
  launch_args: z.array(z.string()).nullish(),
  working_directory: z.string().nullish(),
});
const devbox = z.looseObject({
  name,
  metadata: labels.nullish(),
  environment_variables: labels.nullish(),
  secrets: labels.nullish(),
  mounts: z.array(mount).nullish(),
  launch_parameters: launch.nullish(),
});
const devboxPatch = z.object({ name, metadata: labels.nullish() });
const STATUSES = [
  "scheduled",
  "queued",
  "provisioning",
  "initializing",
  "running",
  "suspending",
  "suspended",
  "resuming",
  "failure",
  "shutdown",
] as const;
const awaited = z.object({ statuses: z.array(z.enum(STATUSES)).min(1) });
const devboxList = z.object({
  limit,
  starting_after: text.optional(),
  status: z.enum(STATUSES).optional(),
  include_total_count: flag,
});

export type DevboxStatus = (typeof STATUSES)[number];
export type NewAxon = z.infer<typeof axon>;
export type Publication = z.infer<typeof publication>;
export type NewDevbox = z.infer<typeof devbox>;
export type DevboxMount = z.infer<typeof mount>;
export type DevboxPatch = z.infer<typeof devboxPatch>;

/** @throws BrokerError bad_request */
export const parseAxon = (body: unknown): NewAxon => parseWith(axon, body ?? {});
/** @throws BrokerError bad_request */
export const parseAxonPatch = (body: unknown) => parseWith(axonPatch, body ?? {});
/** @throws BrokerError bad_request */
export const parsePublication = (body: unknown): Publication => parseWith(publication, body ?? {});
/** @throws BrokerError bad_request */
export const parseEventList = (query: unknown) => parseWith(eventList, query);
/** @throws BrokerError bad_request */
export const parseSubscription = (query: unknown) => parseWith(subscription, query);
/** @throws BrokerError bad_request */
export const parseDevbox = (body: unknown): NewDevbox => parseWith(devbox, body ?? {});
/** @throws BrokerError bad_request */
export const parseDevboxPatch = (body: unknown): DevboxPatch => parseWith(devboxPatch, body ?? {});
/** @throws BrokerError bad_request */
export const parseAwaited = (body: unknown) => parseWith(awaited, body ?? {});
/** @throws BrokerError bad_request */
export const parseDevboxList = (query: unknown) => parseWith(devboxList, query);

/** `metadata[key]=value`, `metadata[key][in]=a,b`: what must be in the metadata. @throws BrokerError bad_request */
export function parseAxonList(query: unknown) {
  const metadata: Record<string, string> = {};
  const metadataIn: Record<string, readonly string[]> = {};
  for (const [parameter, value] of Object.entries(isJsonObject(query) ? query : {})) {
    const [, key, isIn] = /^metadata\[([^\]]+)\](\[in\])?$/.exec(parameter) ?? [];
    if (key === undefined) continue;
    const wanted = parseWith(z.string(), value, parameter);
    if (isIn === undefined) metadata[key] = wanted;
    else metadataIn[key] = wanted.split(",");
  }
  return { ...parseWith(axonList, query), metadata, metadataIn };
}
