import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import { AGENT_LINE_LIMIT_BYTES, INBOUND_LIMIT_BYTES, QUERY_LIMIT_BYTES } from "./protocol/limits.ts";
import { BrokerError } from "./protocol/problems.ts";

const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** What `createBroker` can be told (contract 2). Every field has a flag and a PATCHBAY_ variable of the same name. */
export interface BrokerOptions {
  /** Address to listen on. */
  readonly host: string;
  /** Port to listen on; 0 = any free one. */
  readonly port: number;
  /** Certificate chain and private key: PEM text, or the path of a PEM file. Both or neither. */
  readonly tlsCert: string | undefined;
  readonly tlsKey: string | undefined;
  /** Everything durable; held by one server at a time. */
  readonly dataDir: string;
  /** Where agents' working directories are; undefined = `workspaces` in dataDir. */
  readonly workspaceRoot: string | undefined;
  /** The agent's executable; undefined = the project's own dependency, else `claude` on PATH. */
  readonly claudeBin: string | undefined;
  /** Variables that every agent gets: nothing else of the server's environment reaches one. */
  readonly agentEnv: Readonly<Record<string, string>>;
  /** The first key, an operator's; undefined = one is made at first start. */
  readonly adminKey: string | undefined;
  /** Encrypts secrets at rest: one key, or the newest and older ones with commas between; undefined = made in dataDir. */
  readonly secretsKey: string | undefined;
  /** Exact origins of browsers that may call, besides our own. */
  readonly allowedOrigins: readonly string[];
  /** Host names we answer to, besides loopback and IP literals. */
  readonly allowedHosts: readonly string[];
  /** Where people reach this server, for links that it sends out; undefined = it sends none. */
  readonly publicUrl: string | undefined;
  /** Host names or addresses that webhooks may call though they are private or have no TLS. */
  readonly webhookAllowedHosts: readonly string[];
  /** Who owns agent processes: a program of its own that outlives the server (started or joined), this process, or only runners that dial in. */
  readonly runner: "auto" | "inline" | "none";
  readonly engine: "sqlite";
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** Longest agent line that is forwarded. */
  readonly agentLineLimitBytes: number;
  /** Largest inbound frame or body that carries a query, and any other. */
  readonly queryLimitBytes: number;
  readonly inboundLimitBytes: number;
  /** How often each side of a socket pings; two silent periods end it. */
  readonly heartbeatMs: number;
  /** How long an idle agent is kept, in seconds, where its session says nothing else; 0 = for ever. */
  readonly idleTimeoutS: number;
  /** How many agents may live at once, in all and of one tenant; and how many may be starting. */
  readonly liveAgents: number;
  readonly liveAgentsPerTenant: number;
  readonly startingAgents: number;
  /** How long a running turn may be silent, in seconds, before it is said to be stalled. */
  readonly stallS: number;
  /** Events older than this are removed from logs; 0 = none are. */
  readonly retentionDays: number;
  /** How much the events of a tenant's logs may take before its oldest are removed; 0 = no bound. */
  readonly retentionBytesPerTenant: number;
}

export const BROKER_DEFAULTS: BrokerOptions = Object.freeze({
  host: "127.0.0.1",
  port: 4400,
  tlsCert: undefined,
  tlsKey: undefined,
  dataDir: "./.patchbay",
  workspaceRoot: undefined,
  claudeBin: undefined,
  agentEnv: {},
  adminKey: undefined,
  secretsKey: undefined,
  allowedOrigins: [],
  allowedHosts: [],
  publicUrl: undefined,
  webhookAllowedHosts: [],
  runner: "auto",
  engine: "sqlite",
  logLevel: "info",
  agentLineLimitBytes: AGENT_LINE_LIMIT_BYTES,
  queryLimitBytes: QUERY_LIMIT_BYTES,
  inboundLimitBytes: INBOUND_LIMIT_BYTES,
  heartbeatMs: 15_000,
  idleTimeoutS: 15 * 60,
  liveAgents: 64,
  liveAgentsPerTenant: 64,
  startingAgents: 4,
  stallS: 5 * 60,
  retentionDays: 0,
  retentionBytesPerTenant: 0,
});

/** Options with nothing left open: paths absolute, the workspace root decided, TLS as PEM text. */
export interface ResolvedOptions extends BrokerOptions {
  readonly workspaceRoot: string;
}

// Flags and variables are text; values that code passes are taken as they are.
const integer = (least: number, most: number) =>
  z.preprocess(
    (value) => (typeof value === "string" && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int("must be a whole number").min(least, `must be at least ${least}`).max(most, `must be at most ${most}`),
  );
const list = (item: z.ZodType<string>) =>
  z.preprocess((value) => {
    if (typeof value !== "string") return value;
    return value.split(",").flatMap((part) => (part.trim() === "" ? [] : [part.trim()]));
  }, z.array(item).readonly());
const text = z
  .string()
  .min(1, "must not be empty")
  .max(65_536)
  .refine((value) => !value.includes("\0"), "must not contain NUL");
const secret = text.regex(/^[\x21-\x7e]+$/, "must be printable ASCII without spaces");
const isLongKey = (key: string): boolean => key === "" || key.length >= 32;
const sealingKey = secret.refine(
  (value) => value.split(",").every(isLongKey),
  "must have at least 32 characters (of several, the newest comes first; commas between)",
);
const isOrigin = (value: string): boolean => URL.canParse(value) && new URL(value).origin === value;
const origin = z
  .string()
  .refine(isOrigin, "must be exact origins such as https://console.example.org, separated by commas");
const hostName = z
  .string()
  .regex(/^[A-Za-z0-9.-]+(:\d{1,5})?$/, "must be host names such as patchbay.example.org, separated by commas");
const plainHost = z
  .string()
  .regex(
    /^([A-Za-z0-9.-]+|\[?[0-9A-Fa-f:.]+\]?)$/,
    "must be host names or addresses without a port, separated by commas",
  );
const isBareUrl = (value: string): boolean => {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) && url.href === url.origin + url.pathname;
};
const publicUrl = z
  .string()
  .refine(isBareUrl, "must be a URL such as https://patchbay.example.org, without credentials, query or fragment")
  .transform((value) => new URL(value).href.replace(/\/+$/, ""));
const oneOf = <T extends string>(values: readonly [T, ...T[]]) => z.enum(values, `must be one of ${values.join(", ")}`);
const runner = oneOf(["auto", "inline", "none"]);
const engine = z
  .unknown()
  .refine(
    (value) => value === "sqlite",
    "only sqlite is built: PostgreSQL comes with many servers, one server needs none",
  )
  .pipe(z.literal("sqlite"));

const BYTES = { least: 1024, most: 512 * 1024 * 1024 };
const FIELDS = {
  host: text,
  port: integer(0, 65_535),
  tlsCert: text.optional(),
  tlsKey: text.optional(),
  dataDir: text,
  workspaceRoot: text.optional(),
  claudeBin: text.optional(),
  agentEnv: z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be names of variables"), z.string()),
  adminKey: secret.optional(),
  secretsKey: sealingKey.optional(),
  allowedOrigins: list(origin),
  allowedHosts: list(hostName),
  publicUrl: publicUrl.optional(),
  webhookAllowedHosts: list(plainHost),
  runner,
  engine,
  logLevel: oneOf(LOG_LEVELS),
  agentLineLimitBytes: integer(BYTES.least, BYTES.most),
  queryLimitBytes: integer(BYTES.least, BYTES.most),
  inboundLimitBytes: integer(BYTES.least, BYTES.most),
  heartbeatMs: integer(100, 600_000),
  idleTimeoutS: integer(0, 2_592_000),
  liveAgents: integer(1, 100_000),
  liveAgentsPerTenant: integer(1, 100_000),
  startingAgents: integer(1, 1_000),
  stallS: integer(1, 86_400),
  retentionDays: integer(0, 36_500),
  retentionBytesPerTenant: integer(0, 2 ** 49),
} satisfies Record<keyof BrokerOptions, z.ZodType>;

/** One line of `--help` for each option. */
export const OPTION_HELP: Readonly<Record<keyof BrokerOptions, string>> = {
  host: "address to listen on",
  port: "port to listen on; 0 = any free one",
  tlsCert: "serve TLS with this certificate chain (PEM file)",
  tlsKey: "private key of the certificate (PEM file)",
  dataDir: "everything durable; held by one server at a time",
  workspaceRoot: "agents' working directories (default: workspaces in the data directory)",
  claudeBin: "the agent's executable (default: the project's own, else claude on PATH)",
  agentEnv: "NAME=value for every agent; repeatable",
  adminKey: "the first key, an operator's (default: made at first start)",
  secretsKey: "encrypts secrets at rest (default: made in the data directory)",
  allowedOrigins: "origins of browsers that may call, separated by commas",
  allowedHosts: "host names we answer to, separated by commas",
  publicUrl: "where people reach this server, for links that it sends out",
  webhookAllowedHosts: "private hosts that webhooks may call, separated by commas",
  runner:
    "who owns agent processes: auto (a program that outlives the server), inline, or none (only runners that dial in)",
  engine: "where logs and metadata live: sqlite",
  logLevel: `one of ${LOG_LEVELS.join(", ")}`,
  agentLineLimitBytes: "longest agent line that is forwarded",
  queryLimitBytes: "largest inbound frame or body of a query",
  inboundLimitBytes: "largest inbound frame or body of anything else",
  heartbeatMs: "how often each side of a socket pings",
  idleTimeoutS: "how long an idle agent is kept, unless its session says else; 0 = for ever",
  liveAgents: "how many agents may live at once",
  liveAgentsPerTenant: "how many agents of one tenant may live at once",
  startingAgents: "how many agents may be starting at once",
  stallS: "how long a running turn may be silent before it is said to be stalled",
  retentionDays: "events older than this are removed from logs; 0 = none are",
  retentionBytesPerTenant: "how much a tenant's events may take before its oldest are removed; 0 = no bound",
};

const isOptionName = (name: string): name is keyof BrokerOptions => Object.hasOwn(FIELDS, name);
export const OPTION_NAMES: readonly (keyof BrokerOptions)[] = Object.keys(FIELDS).filter(isOptionName);

/** Options that are secrets: each is also read from a file that `…_FILE` names. */
export const SECRET_OPTIONS: readonly (keyof BrokerOptions)[] = ["adminKey", "secretsKey", "tlsKey"];

export const configError = (name: string, message: string): BrokerError =>
  new BrokerError("config_invalid", `${name}: ${message}`, { details: { name } });

function check(name: keyof BrokerOptions, value: unknown, label: string): unknown {
  const parsed = FIELDS[name].safeParse(value);
  if (parsed.success) return parsed.data;
  throw configError(label, `${parsed.error.issues[0]?.message ?? "is not valid"}. Correct it and start again.`);
}

/** Checks options that came as text, one by one; `label` names each as its giver knows it. @throws BrokerError config_invalid */
export function parseOptions(
  given: ReadonlyMap<keyof BrokerOptions, { readonly value: unknown; readonly label: string }>,
): Partial<BrokerOptions> {
  return Object.fromEntries([...given].map(([name, { value, label }]) => [name, check(name, value, label)]));
}

function pem(value: string | undefined, name: string): string | undefined {
  if (value === undefined || value.startsWith("-----BEGIN ")) return value;
  try {
    return readFileSync(value, "utf8");
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw configError(name, `cannot be read (${reason}). Name a readable PEM file.`);
  }
}

/** Fills in defaults and checks everything. Relative paths start at the current directory. @throws BrokerError config_invalid */
export function resolveOptions(given: Partial<BrokerOptions> = {}): ResolvedOptions {
  const unknown = Object.keys(given).find((name) => !isOptionName(name));
  if (unknown !== undefined) throw configError(unknown, "is not an option. Remove it.");
  const labelled = OPTION_NAMES.map(
    (name) => [name, { value: given[name] ?? BROKER_DEFAULTS[name], label: name }] as const,
  );
  const options: BrokerOptions = { ...BROKER_DEFAULTS, ...parseOptions(new Map(labelled)) };
  if ((options.tlsCert === undefined) !== (options.tlsKey === undefined)) {
    throw configError("tlsCert, tlsKey", "TLS needs both a certificate and its key. Give both or neither.");
  }
  const dataDir = resolve(options.dataDir);
  return {
    ...options,
    dataDir,
    workspaceRoot: resolve(options.workspaceRoot ?? join(dataDir, "workspaces")),
    tlsCert: pem(options.tlsCert, "tlsCert"),
    tlsKey: pem(options.tlsKey, "tlsKey"),
  };
}
