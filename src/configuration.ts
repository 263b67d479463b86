import { readFileSync } from "node:fs";
import { type BrokerOptions, configError, OPTION_NAMES, parseOptions, SECRET_OPTIONS } from "./options.ts";

const PREFIX = "PATCHBAY_";
const AGENT_ENV_PREFIX = "PATCHBAY_AGENT_ENV_";

/** Where a client command finds its server, and as whom. */
export interface ClientConfiguration {
  readonly url: string | undefined;
  readonly token: string | undefined;
}

export interface Configuration {
  readonly broker: Partial<BrokerOptions>;
  readonly client: ClientConfiguration;
}

/** `agentLineLimitBytes` -> `PATCHBAY_AGENT_LINE_LIMIT_BYTES`. */
export const variableOf = (name: string): string =>
  PREFIX + name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
/** `agentLineLimitBytes` -> `--agent-line-limit-bytes`. */
export const flagOf = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

// One value of agentEnv per variable, so PATCHBAY_AGENT_ENV alone is no name.
const PLAIN_OPTIONS = OPTION_NAMES.filter((name) => name !== "agentEnv");
const fileVariable = (name: string): string => `${variableOf(name)}_FILE`;
const KNOWN_VARIABLES: readonly string[] = [
  ...PLAIN_OPTIONS.map(variableOf),
  ...SECRET_OPTIONS.map(fileVariable),
  "PATCHBAY_URL",
  "PATCHBAY_TOKEN",
  "PATCHBAY_TOKEN_FILE",
];

/** How many single-character edits lead from one word to the other. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/** The known word that looks most like `word`. */
function nearest(word: string, known: readonly string[]): string | undefined {
  const scored = known.map((candidate) => ({ candidate, distance: editDistance(word, candidate) }));
  return scored.sort((a, b) => a.distance - b.distance)[0]?.candidate;
}

function refuseUnknown(names: readonly string[]): void {
  const unknown = names.find(
    (name) => !KNOWN_VARIABLES.includes(name) && !(name.startsWith(AGENT_ENV_PREFIX) && name !== AGENT_ENV_PREFIX),
  );
  if (unknown === undefined) return;
  const suggestion = nearest(unknown, [...KNOWN_VARIABLES, AGENT_ENV_PREFIX + unknown.split("_").at(-1)]);
  throw configError(unknown, `is not a configuration name. Did you mean ${suggestion}? Rename or unset it.`);
}

function readSecretFile(path: string, label: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw configError(label, `cannot be read (${reason}). Name a readable file.`);
  }
}

type Environment = Readonly<Record<string, string | undefined>>;
/** Flags as a parser hands them over: camel-case names, `agentEnv` as a list of NAME=value. Others than ours are not looked at. */
export type Flags = Readonly<Record<string, unknown>>;

interface Found {
  readonly value: unknown;
  readonly label: string;
}

// A variable that is set but empty counts as absent: that is what `${NAME:-}` in a compose file gives.
const present = (value: unknown): value is string => typeof value === "string" && value !== "";

function find(name: string, environment: Environment, flags: Flags, secret: boolean): Found | undefined {
  if (flags[name] !== undefined) return { value: flags[name], label: flagOf(name) };
  const fileFlag = flags[`${name}File`];
  if (secret && present(fileFlag)) {
    const label = `${flagOf(name)}-file`;
    return { value: readSecretFile(fileFlag, label), label };
  }
  const value = environment[variableOf(name)];
  const file = secret ? environment[fileVariable(name)] : undefined;
  if (present(value) && present(file))
    throw configError(variableOf(name), `is given twice, also as ${fileVariable(name)}. Unset one.`);
  if (present(file)) return { value: readSecretFile(file, fileVariable(name)), label: fileVariable(name) };
  return present(value) ? { value, label: variableOf(name) } : undefined;
}

function readAgentEnv(environment: Environment, flags: Flags): Record<string, string> {
  const shared: Record<string, string> = {};
  for (const [name, value] of Object.entries(environment)) {
    if (name.startsWith(AGENT_ENV_PREFIX) && value !== undefined) shared[name.slice(AGENT_ENV_PREFIX.length)] = value;
  }
  const { agentEnv } = flags;
  const pairs = Array.isArray(agentEnv) ? agentEnv : [];
  for (const pair of pairs.map(String)) {
    const equals = pair.indexOf("=");
    if (equals < 1) throw configError("--agent-env", "must be NAME=value. Correct it and start again.");
    shared[pair.slice(0, equals)] = pair.slice(equals + 1);
  }
  return shared;
}

/** What `patchbay runner --broker` is told. */
export interface RunnerConfiguration {
  readonly token: string | undefined;
  readonly dataDir: string | undefined;
  readonly workspaceRoot: string | undefined;
  readonly claudeBin: string | undefined;
  readonly agentEnv: Readonly<Record<string, string>>;
}

/** The part of the configuration that a runner elsewhere needs, from the same names. @throws BrokerError config_invalid */
export function readRunnerConfiguration(environment: Environment, flags: Flags): RunnerConfiguration {
  const { broker, client } = readConfiguration(environment, flags);
  const { dataDir, workspaceRoot, claudeBin, agentEnv = {} } = broker;
  return { token: client.token, dataDir, workspaceRoot, claudeBin, agentEnv };
}

/** Reads flags, then the environment: the only place that does. A flag wins over its variable. @throws BrokerError config_invalid */
export function readConfiguration(environment: Environment, flags: Flags = {}): Configuration {
  refuseUnknown(Object.keys(environment).filter((name) => name.startsWith(PREFIX)));
  const given = new Map<keyof BrokerOptions, Found>();
  for (const name of PLAIN_OPTIONS) {
    const found = find(name, environment, flags, SECRET_OPTIONS.includes(name));
    if (found !== undefined) given.set(name, found);
  }
  const agentEnv = readAgentEnv(environment, flags);
  if (Object.keys(agentEnv).length > 0) given.set("agentEnv", { value: agentEnv, label: `${AGENT_ENV_PREFIX}<NAME>` });
  const text = (name: string, secret: boolean): string | undefined => {
    const value = find(name, environment, flags, secret)?.value;
    return present(value) ? value : undefined;
  };
  return { broker: parseOptions(given), client: { url: text("url", false), token: text("token", true) } };
}
