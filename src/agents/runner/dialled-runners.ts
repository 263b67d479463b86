import type { Duplex } from "node:stream";
import type { JsonObject } from "../../protocol/json.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { createStreamLink, type Link } from "./link.ts";
import { createMailbox } from "./mailbox.ts";
import { createRemoteRunner, type RemoteRunner } from "./remote-runner.ts";

/** A runner that dials in. Tenant and name are its identity; instance and process tell one machine, and one start of it, from another. */
export interface DialledIdentity {
  readonly tenant: string;
  readonly name: string;
  /** Kept in the runner's folder, which one process at a time can hold. */
  readonly instance: string;
  /** Made anew each time that the runner starts. */
  readonly process: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** What a server keeps of a runner over its own end. */
export interface RegisteredRunner extends Omit<DialledIdentity, "process"> {
  /** What it said of itself when it was last linked. */
  readonly about: JsonObject;
  readonly seenAtMs: number;
}

export interface DialledRunner {
  readonly remote: RemoteRunner;
  readonly tenant: string;
  readonly name: string;
  labels(): Readonly<Record<string, string>>;
  /** What the runner said of itself when it was last linked. */
  about(): JsonObject;
  isLinked(): boolean;
  /** For how long it has not been linked; 0 while it is. In milliseconds. */
  awayMs(): number;
}

export interface DialledRunners {
  /** @throws BrokerError runner_in_use */
  refuseSecond(identity: DialledIdentity): void;
  /** Takes over the stream, whatever becomes of it. @throws BrokerError runner_in_use */
  accept(identity: DialledIdentity, stream: Duplex): void;
  /** The one of that name, whether it is linked or not. */
  get(tenant: string, name: string): DialledRunner;
  /** Those that were ever linked, of that tenant or (undefined) of all. */
  list(tenant?: string): readonly DialledRunner[];
  /** Calls back when a runner has been linked. Returns the way to stop. */
  onLinked(listener: (runner: DialledRunner) => void): () => void;
  close(): Promise<void>;
}

export interface DialledRunnersParts {
  readonly epoch: number;
  readonly broker: string;
  readonly known: readonly RegisteredRunner[];
  readonly save: (runner: RegisteredRunner) => void;
  readonly report: (error: BrokerError) => void;
  /** How long a name is kept for a machine that is away, in milliseconds. */
  readonly graceMs?: number;
  /** How long a call waits for a runner that is away, in milliseconds. */
  readonly patienceMs?: number;
}

const GRACE_MS = 60_000;

/** One name: the machine that has it, and the way to it. */
interface Entry extends DialledRunner {
  machine: Omit<DialledIdentity, "process">;
  /** undefined: no process of it has been here since the server started. */
  process: string | undefined;
  /** undefined for a name that a session knows and nobody has ever come for. */
  seenAtMs: number | undefined;
  stream: Duplex | undefined;
  offer(link: Link): void;
}

/** The runners of all tenants that dial in to this server. */
export function createDialledRunners(parts: DialledRunnersParts): DialledRunners {
  const { graceMs = GRACE_MS } = parts;
  const entries = new Map<string, Entry>();
  const listeners = new Set<(runner: DialledRunner) => void>();
  const told = (runner: DialledRunner): void => {
    for (const listener of listeners) listener(runner);
  };
  const keyOf = (tenant: string, name: string): string => JSON.stringify([tenant, name]);
  const nobody = { instance: "", labels: {}, about: {} };

  function entryOf(tenant: string, name: string, known?: RegisteredRunner): Entry {
    const key = keyOf(tenant, name);
    const entry = entries.get(key) ?? createEntry(parts, known ?? { ...nobody, tenant, name, seenAtMs: 0 }, told);
    if (known !== undefined) entry.seenAtMs = known.seenAtMs;
    entries.set(key, entry);
    return entry;
  }

  function refuseSecond({ tenant, name, instance, process }: DialledIdentity): void {
    const entry = entries.get(keyOf(tenant, name));
    if (entry?.seenAtMs === undefined) return;
    const isHere = entry.stream?.destroyed === false;
    // One process may dial anew before the server has noticed that its old link is dead; nobody else may.
    const isSame = entry.machine.instance === instance && (!isHere || entry.process === process);
    if (isSame || (!isHere && entry.awayMs() > graceMs)) return;
    const until = isHere ? "is linked" : `was linked less than ${Math.ceil(graceMs / 1000)} s ago`;
    throw new BrokerError("runner_in_use", `Another runner named ${name} ${until}. Give this one another --name.`, {
      details: { runner: name },
    });
  }

  for (const known of parts.known) entryOf(known.tenant, known.name, known);
  return {
    refuseSecond,
    accept(identity, stream) {
      // First of all: a stream that nobody listens to ends this process with its first error, even one that is refused.
      const link = createStreamLink(stream);
      refuseSecond(identity);
      const entry = entryOf(identity.tenant, identity.name);
      const { process, ...machine } = identity;
      entry.stream?.destroy();
      Object.assign(entry, { machine, process, stream });
      entry.offer(link);
    },
    get: (tenant, name) => entryOf(tenant, name),
    list: (tenant) =>
      [...entries.values()].filter(
        (entry) => entry.seenAtMs !== undefined && (tenant === undefined || entry.tenant === tenant),
      ),
    onLinked(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    async close() {
      await Promise.all([...entries.values()].map((entry) => entry.remote.close()));
    },
  };
}

function createEntry(parts: DialledRunnersParts, known: RegisteredRunner, told: (entry: Entry) => void): Entry {
  const { tenant, name } = known;
  const links = createMailbox<Link>();
  let { about } = known;
  let awaySinceMs: number | undefined = performance.now();
  const remote = createRemoteRunner({
    name,
    epoch: parts.epoch,
    broker: parts.broker,
    ...(parts.patienceMs !== undefined && { patienceMs: parts.patienceMs }),
    connect: async (signal) => ({ link: await links.take(signal) }),
    // The runner, not the server, decides when to try again.
    isDialledIn: true,
    onLost: parts.report,
    onLinked(said) {
      about = said;
      awaySinceMs = undefined;
      entry.seenAtMs = Date.now();
      parts.save({ ...entry.machine, about, seenAtMs: entry.seenAtMs });
      told(entry);
    },
    onUnlinked() {
      awaySinceMs = performance.now();
    },
  });
  const entry: Entry = {
    remote,
    tenant,
    name,
    machine: { tenant, name, instance: known.instance, labels: known.labels },
    process: undefined,
    seenAtMs: undefined,
    stream: undefined,
    labels: () => entry.machine.labels,
    about: () => about,
    isLinked: () => remote.isLinked(),
    awayMs: () => (awaySinceMs === undefined ? 0 : performance.now() - awaySinceMs),
    offer: (link) => links.give(link)?.destroy(),
  };
  return entry;
}
