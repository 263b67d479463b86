import { createHash } from "node:crypto";
import { join } from "node:path";
import type { JsonObject } from "../../protocol/json.ts";
import type { Launcher, StopPatience } from "../port.ts";
import { prepareAgent, type RunnerSettings } from "../prepare.ts";
import type { RunnerFiles, StartRequest } from "../runner-port.ts";
import type { ProcessIdentity } from "../sweep.ts";
import { createTranscriptFiles } from "../transcript-files.ts";
import { answerCall } from "./calls.ts";
import { type Frame, FrameFault } from "./frames.ts";
import { type FormerOwner, type Hello, isRefusal, judgeHello } from "./handshake.ts";
import { type HostedRun, startHostedRun } from "./hosted-run.ts";
import { createJournal } from "./journal.ts";
import type { Link } from "./link.ts";
import { createMessageJoiner, type MessageJoiner, readJson } from "./messages.ts";
import { createSpool } from "./spool.ts";

/** What of a run's output is kept until it is acknowledged, in bytes. */
export interface KeepLimits {
  readonly memoryBytes: number;
  readonly spoolBytes: number;
}

export interface HostParts {
  readonly launcher: Launcher;
  readonly settings: RunnerSettings;
  /** A folder of the runner's own, mode 0700. */
  readonly spoolFolder: string;
  readonly keep?: KeepLimits;
  /** What a server learns of this runner. */
  readonly about: JsonObject;
  /** A run began, ended or was forgotten, or a link came or went. */
  readonly changed?: () => void;
  readonly began?: (process: ProcessIdentity) => void;
  readonly ended?: (process: ProcessIdentity | undefined) => void;
}

/** Owns the agents of a runner, and serves one server at a time. */
export interface Host {
  /** A server has come over this link. With a secret it must know it. */
  accept(link: Link, secret?: string): void;
  isOwned(): boolean;
  /** Agents that live, or have ended without that being acknowledged. */
  runCount(): number;
  /** Stops the agents that there are; others may be started later. Resolves when they are gone. */
  stopAgents(patience: StopPatience): Promise<void>;
  /** Stops all agents, and any that is started later. Resolves when they are gone and the server, if there is one, has acknowledged that, or does not within `tellMs`. */
  stopAll(patience: StopPatience, tellMs: number): Promise<void>;
  /** Forgets everything and closes the link. */
  close(): Promise<void>;
}

const KEEP: KeepLimits = { memoryBytes: 16 * 1024 * 1024, spoolBytes: 1024 * 1024 * 1024 };
const HELLO_PATIENCE_MS = 5000;
const CLOSE_LIMIT_MS = 2000;

/** The server that owns the runner now. */
export interface Owner {
  readonly link: Link;
  readonly channels: Map<number, HostedRun>;
  readonly messages: MessageJoiner;
  /** Its link is closed, or another server's has taken its place: it can do nothing more. */
  isGone(): boolean;
}

/** What calls act on. */
export interface HostRuns {
  readonly files: RunnerFiles;
  get(run: string): HostedRun | undefined;
  start(request: StartRequest): Promise<HostedRun>;
  forget(run: string): Promise<void>;
  /** The next owner is not welcomed before this work is done: two of them writing at once would leave a mixture. */
  during<T>(work: Promise<T>): Promise<T>;
}

export function createHost(parts: HostParts): Host {
  const watchers = new Set<() => void>();
  const changed = (): void => {
    parts.changed?.();
    for (const watcher of watchers) watcher();
  };
  const runs = createHostRuns(parts, changed);
  let owner: Owner | undefined;
  let former: FormerOwner = { epoch: 0, broker: "" };
  let turn = 0;

  function take(link: Link, { epoch, broker, version }: Hello): Owner {
    former = { epoch, broker };
    if (owner !== undefined) leave(owner, true);
    const taken: Owner = {
      link,
      channels: new Map(),
      messages: createMessageJoiner(),
      isGone: () => owner !== taken,
    };
    owner = taken;
    const { about } = parts;
    // What the one before had begun is done by then: a run is one like the others, and a transcript is written.
    void runs.settled().then(() => {
      link.send({ kind: "welcome", channel: 0, body: jsonBody({ version, about, runs: runs.list() }) });
    });
    changed();
    return taken;
  }

  function leave(gone: Owner, isReplaced: boolean): void {
    if (owner !== gone) return;
    owner = undefined;
    for (const run of gone.channels.values()) run.unbind();
    if (isReplaced) gone.link.close();
    changed();
  }

  /** One piece of each run in turn, so that none waits for another's flood. */
  function pumpAll({ channels }: Owner): void {
    const all = [...channels.values()];
    turn += 1;
    const order = all.map((_, index) => all[(index + turn) % all.length]);
    for (let isMore = true; isMore; ) isMore = order.map((run) => run?.pump()).includes(true);
  }

  /** Resolves when that is so, or after a time. */
  async function until(isSo: () => boolean, limitMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = (): void => void (isSo() && resolve());
    const timer = setTimeout(resolve, limitMs);
    watchers.add(check);
    check();
    await promise;
    watchers.delete(check);
    clearTimeout(timer);
  }

  function accept(link: Link, secret?: string): void {
    let mine: Owner | undefined;
    const patience = setTimeout(() => link.destroy(), HELLO_PATIENCE_MS).unref();
    link.open({
      frame(frame) {
        if (mine !== undefined) {
          if (mine === owner) ownerFrame(mine, frame, runs);
          return;
        }
        if (frame.kind !== "hello" || frame.more) throw new FrameFault("hello_expected");
        clearTimeout(patience);
        const judged = judgeHello(readJson(frame.body), secret, former);
        if (!isRefusal(judged)) mine = take(link, judged);
        else {
          link.send({ kind: "refused", channel: 0, body: jsonBody({ ...judged }) });
          link.close();
        }
      },
      drained() {
        if (mine !== undefined && mine === owner) pumpAll(mine);
      },
      closed(fault) {
        clearTimeout(patience);
        if (fault !== undefined) warnOfEnd(fault);
        if (mine !== undefined) leave(mine, false);
      },
    });
  }

  return {
    accept,
    isOwned: () => owner !== undefined,
    runCount: () => runs.list().length + runs.starting(),
    stopAgents: (patience) => runs.stop(patience),
    async stopAll(patience, tellMs) {
      await runs.stopAll(patience);
      await until(() => owner === undefined || runs.list().length === 0, tellMs);
    },
    async close() {
      await runs.forgetAll();
      owner?.link.close();
      await until(() => owner === undefined, CLOSE_LIMIT_MS);
    },
  };
}

function ownerFrame(owner: Owner, frame: Frame, runs: HostRuns): void {
  if (frame.kind === "call") {
    const message = owner.messages.push(frame);
    if (message !== undefined) void answerCall(owner, frame.channel, message, runs);
    return;
  }
  // A run may have been forgotten while the frame was on its way.
  owner.channels.get(frame.channel)?.frame(frame);
}

/** What the peer did wrong needs a line; what we did wrong needs its place. */
function warnOfEnd(fault: Error): void {
  const what = fault instanceof FrameFault ? fault.message : (fault.stack ?? fault.message);
  process.emitWarning(`The link to a server ended: ${what}`);
}

function jsonBody(json: JsonObject): Buffer {
  return Buffer.from(JSON.stringify(json), "utf8");
}

function createHostRuns(parts: HostParts, changed: () => void) {
  const { settings, launcher, keep = KEEP } = parts;
  const runs = new Map<string, HostedRun>();
  const starting = new Map<string, Promise<HostedRun>>();
  const leaving = new Map<string, Promise<void>>();
  const underWay = new Set<Promise<unknown>>();
  let isClosing = false;

  async function begin(request: StartRequest): Promise<HostedRun> {
    const { run } = request;
    const prepared = await prepareAgent(request, settings);
    // An id is the server's choice; as a file's name it is a hash.
    const spoolFile = join(parts.spoolFolder, createHash("sha256").update(run).digest("hex").slice(0, 32));
    const journal = createJournal(createSpool(spoolFile, keep.spoolBytes), keep.memoryBytes);
    const started = startHostedRun({
      run,
      launcher,
      prepared,
      journal,
      began: (process) => parts.began?.(process),
      ended(process) {
        parts.ended?.(process);
        changed();
      },
    });
    if (isClosing) started.stop({ eofMs: 0, termMs: 0 });
    runs.set(run, started);
    return started;
  }

  /** Resolves when its agent is gone; for whoever asks again, too. */
  function forget(run: string): Promise<void> {
    const known = runs.get(run);
    if (known === undefined) return leaving.get(run) ?? Promise.resolve();
    runs.delete(run);
    const left = leave(known).finally(() => leaving.delete(run));
    leaving.set(run, left);
    return left;
  }

  async function leave(known: HostedRun): Promise<void> {
    known.stop({ eofMs: 0, termMs: 0 });
    await known.gone;
    await known.forget();
    changed();
  }

  async function stop(patience: StopPatience): Promise<void> {
    for (const run of runs.values()) run.stop(patience);
    await Promise.all([...runs.values()].map((run) => run.gone));
  }

  return {
    files: createTranscriptFiles(settings),
    stop,
    list: () => [...runs.keys()],
    starting: () => starting.size,
    settled: () => Promise.allSettled([...starting.values(), ...underWay]),
    during<T>(work: Promise<T>): Promise<T> {
      underWay.add(work);
      const done = (): void => void underWay.delete(work);
      work.then(done, done);
      return work;
    },
    get: (run: string) => runs.get(run),
    forget,
    async start(request: StartRequest) {
      const known = runs.get(request.run) ?? starting.get(request.run);
      if (known !== undefined) return known;
      const begun = begin(request).finally(() => starting.delete(request.run));
      starting.set(request.run, begun);
      return begun;
    },
    async stopAll(patience: StopPatience) {
      isClosing = true;
      await Promise.allSettled(starting.values());
      await stop(patience);
    },
    async forgetAll() {
      await Promise.all([...runs.keys()].map(forget));
    },
  };
}
