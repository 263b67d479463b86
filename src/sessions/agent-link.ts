import type { AgentExit, AgentOutput, StopPatience } from "../agents/port.ts";
import type { Run, RunHandlers } from "../agents/runner-port.ts";
import type { JsonObject } from "../protocol/json.ts";
import { createAgentStarts } from "./agent-starts.ts";
import type { Hosting, JoinedRun } from "./hosting.ts";
import { hasUnsureTurns } from "./on-exit.ts";
import type { SessionRow } from "./rows.ts";
import type { Place, Slots } from "./slots.ts";
import type { OutboxLine, State } from "./state.ts";
import type { Signal } from "./step.ts";
import type { Lifecycle, Outcome } from "./work.ts";

/** Agent output that may be waiting for the disk before no more of it is taken, in bytes. */
const UNCOMMITTED_LIMIT_BYTES = 8 * 1024 * 1024;

export interface AgentLinkParts {
  readonly row: SessionRow;
  readonly hosting: Hosting;
  readonly slots: Slots;
  readonly startTimeoutMs: number;
  readonly stopPatience: StopPatience;
  readonly state: () => State;
  readonly apply: (signal: Signal) => { readonly outcome: Outcome; readonly durable: Promise<void> };
  readonly messageAt: (number: number) => Promise<JsonObject>;
  readonly isBroken: () => boolean;
  readonly breakDown: (error: unknown) => void;
  /** Something came from the agent. */
  readonly heard: () => void;
}

/** The one agent process of a session (contract promise 7): carries its lines into steps, and what steps decide back to it. */
export interface AgentLink {
  /** How far the agent's output has been read: it is made durable with what it led to. */
  mark(): number;
  /** What a step wants done, once it is durable. */
  carryOut(outcome: Outcome, durable: Promise<void>): void;
  /** Everything up to this mark of that run is durable. */
  acknowledge(run: string | undefined, mark: number): void;
  /**
   * Goes on with an agent of an earlier server; resolves when all that server may have shown has been read again, or never can be. Numbers up
   * to `reserved` may have been shown.
   */
  join(joined: JoinedRun, reserved: number): Promise<void>;
  /** The log is broken: the agent is of no use. */
  kill(): void;
  /** Lets the agent alone (undefined), or stops it; nothing starts one again. Resolves when its exit has been dealt with. */
  close(patience: StopPatience | undefined): Promise<void>;
}

export function createAgentLink(parts: AgentLinkParts, initialMark: number): AgentLink {
  const { row, hosting, slots, state, apply, breakDown } = parts;
  let mark = initialMark;
  let run: Run | undefined;
  let place: Place | undefined;
  let gone: Promise<void> = Promise.resolve();
  let starting: Promise<void> = Promise.resolve();
  let closing = false;
  let detached = false;
  let givingUp: NodeJS.Timeout | undefined;
  let sentBefore = 0;
  let startFault: string | undefined;
  let uncommittedBytes = 0;
  let catchUp: { readonly at: number; readonly reserved: number; readonly reached: () => void } | undefined;
  // Lines wait for their append (design 2: durable first, stdin second) in a chain of their own.
  let stdin: Promise<void> = Promise.resolve();

  const starts = createAgentStarts({ row, hosting, slots });

  const reach = (number: number): void => {
    mark = number;
    if (catchUp !== undefined && number >= catchUp.at) endCatchUp();
  };

  const endCatchUp = (): void => {
    catchUp?.reached();
    catchUp = undefined;
  };

  /** Lines go to the agent that lived when they were decided on, never to a later one; its exit has closed what waited for them. */
  const write = async (
    lines: readonly OutboxLine[],
    durable: Promise<void>,
    target: Run | undefined,
  ): Promise<void> => {
    await durable;
    for (const { id, line } of lines) {
      const message = typeof line === "number" ? await parts.messageAt(line) : line;
      if (!detached) target?.write(id, message);
    }
  };

  const take = (lines: readonly AgentOutput[], upTo: number): void | Promise<void> => {
    reach(upTo);
    const { durable, outcome } = apply({ type: "output", lines, lineLimitBytes: hosting.lineLimitBytes });
    let bytes = 0;
    for (const { payload } of outcome.events) bytes += payload instanceof Uint8Array ? payload.length : 0;
    uncommittedBytes += bytes;
    const committed = durable.finally(() => {
      uncommittedBytes -= bytes;
    });
    const quiet = committed.catch(() => undefined);
    return uncommittedBytes > UNCOMMITTED_LIMIT_BYTES ? quiet : undefined;
  };

  const exited = async (exit: AgentExit, number: number, target: Run): Promise<void> => {
    const { cliSessionId } = state();
    // What is written from here on never gets there.
    const taken = await takenMessages(hosting, row, state(), cliSessionId);
    if (detached) return;
    run = undefined;
    clearTimeout(givingUp);
    place?.leave();
    place = undefined;
    // Its runner died in mid-reading: what an earlier server showed of the rest is lost, and its numbers are not given again.
    const jumpTo = catchUp !== undefined && number < catchUp.at ? { jumpTo: catchUp.reserved } : {};
    mark = number;
    // What an earlier server had decided to write, it may have written.
    const sentUpTo = exit.sentUpTo === undefined ? {} : { sentUpTo: Math.max(exit.sentUpTo, sentBefore) };
    const fault = startFault === undefined ? {} : { spawnError: startFault };
    startFault = undefined;
    if (parts.isBroken()) return endCatchUp();
    const { durable } = apply({
      type: "exited",
      ...jumpTo,
      exit: { ...exit, ...fault, ...sentUpTo },
      taken,
      continues: row.spec.onCrash === "continue" && !closing,
    });
    endCatchUp();
    await durable;
    target.acknowledge(number);
  };

  const handlersOf = (target: Run, ended: () => void): RunHandlers => ({
    output(lines, upTo) {
      if (detached || parts.isBroken()) return;
      parts.heard();
      // A commit must not reach beyond its last durable event: numbers of previews after it are given again after a crash (design 3).
      const cut = lines.findLastIndex((line) => line.kind !== "line" || line.message.type !== "stream_event") + 1;
      if (cut === 0 || cut === lines.length) return take(lines, upTo);
      const first = take(lines.slice(0, cut), upTo - (lines.length - cut));
      return take(lines.slice(cut), upTo) ?? first;
    },
    exited: (exit, number) => void exited(exit, number, target).catch(breakDown).finally(ended),
    written: (id) => void (detached || parts.isBroken() || apply({ type: "written", id })),
    away(isAway) {
      if (detached || parts.isBroken()) return;
      // In the midst of what an earlier server may have shown: the session opens without the rest, which gets new numbers.
      if (isAway && catchUp !== undefined) apply({ type: "recovered_away", jumpTo: catchUp.reserved });
      apply({ type: "away", isAway });
      if (isAway) endCatchUp();
      clearTimeout(givingUp);
      // The others wait for as long as it takes.
      if (isAway && row.spec.runner?.when_away === "fail")
        givingUp = setTimeout(() => target.abandon(), hosting.giveUpAfterMs).unref();
      if (isAway && state().phase.name === "stopping") target.abandon();
    },
  });

  const hold = (target: Run): RunHandlers => {
    const { promise, resolve } = Promise.withResolvers<void>();
    run = target;
    gone = promise;
    return handlersOf(target, resolve);
  };

  async function start(): Promise<void> {
    const { phase, run: id, cliSessionId, rerun } = state();
    if (closing || phase.name !== "starting" || id === undefined) return;
    mark = 0;
    sentBefore = 0;
    const wanted = (): boolean => state().run === id && state().phase.name === "starting" && !closing;
    const waiting = (reason: string | undefined): void =>
      void (wanted() && apply({ type: "waiting", run: id, reason }));
    try {
      const made = await starts.begin({ run: id, cliSessionId, rerun }, waiting, wanted);
      if (made === undefined) return giveUp(id);
      const { run: started } = made;
      place = made.place;
      // The next server finds it at the runner.
      if (detached) return;
      waiting(undefined);
      const handlers = hold(started);
      if (started.pid !== undefined) spawned(started);
      started.attach(0, handlers);
      if (!wanted()) return stop(parts.stopPatience);
      watchStart(started, phase.initializeId);
    } catch (error) {
      const spawnError = error instanceof Error ? error.message : String(error);
      if (!detached) apply({ type: "exited", exit: { ...NEVER_STARTED, spawnError } });
    }
  }

  /** The wish to start was withdrawn while it waited: nothing has come to be. */
  const giveUp = (id: string): void => {
    if (state().run === id && !closing) apply({ type: "exited", exit: NEVER_STARTED });
  };

  const spawned = ({ pid = 0, process, resumed }: Run): void =>
    void apply({ type: "spawned", pid, process: process ?? { pid, startTime: "" }, resumed });

  /** A CLI that never answers initialize is stopped; its exit fails the session with what stderr said. */
  const watchStart = (started: Run, initializeId: string): void => {
    const timer = setTimeout(() => {
      const { phase, isAway } = state();
      if (phase.name !== "starting" || phase.initializeId !== initializeId) return;
      // It may have answered: its runner tells when it is back.
      if (isAway) return watchStart(started, initializeId);
      startFault = `it did not answer initialize within ${parts.startTimeoutMs} ms`;
      started.stop({ eofMs: 0, termMs: 1000 });
    }, parts.startTimeoutMs);
    timer.unref();
  };

  /** One whose runner is away is given up: nobody waits for the end of an agent that cannot be told to end. */
  const stop = (patience: StopPatience): void => {
    if (state().isAway) run?.abandon();
    else run?.stop(patience);
  };

  const live = (lifecycle: Lifecycle | undefined): void => {
    if (lifecycle === "start") starting = start();
    if (lifecycle === "stop") {
      stdin = stdin.then(() => stop(parts.stopPatience));
      if (run === undefined) starts.withdraw();
    }
    if (lifecycle === "kill") stop({ eofMs: 0, termMs: 0 });
  };

  return {
    mark: () => mark,
    carryOut(outcome, durable) {
      const target = run;
      if (outcome.stdin.length > 0) stdin = stdin.then(() => write(outcome.stdin, durable, target)).catch(breakDown);
      if (outcome.state.phase.name === "live") place?.ready();
      live(outcome.lifecycle);
    },
    acknowledge(id, number) {
      if (id !== undefined && run?.run === id && !detached) run.acknowledge(number);
    },
    async join({ run: joined, isAway }, reserved) {
      const handlers = hold(joined);
      place = slots.occupy(row.tenant);
      const { process, outbox, phase } = state();
      sentBefore = outbox.at(-1)?.id ?? 0;
      const missing = outbox.filter((line) => line.id > joined.written);
      stdin = write(missing, Promise.resolve(), joined).catch(breakDown);
      if (process === undefined && joined.pid !== undefined) spawned(joined);
      if (!isAway) apply({ type: "away", isAway });
      const { promise, resolve } = Promise.withResolvers<void>();
      if (isAway || joined.last <= mark) resolve();
      else catchUp = { at: joined.last, reserved, reached: resolve };
      joined.attach(mark, handlers);
      if (isAway) handlers.away(true);
      await promise;
      if (phase.name === "starting" && run !== undefined) watchStart(joined, phase.initializeId);
      if (phase.name === "stopping") stop(parts.stopPatience);
    },
    kill() {
      endCatchUp();
      stop({ eofMs: 0, termMs: 0 });
    },
    async close(patience) {
      closing = true;
      clearTimeout(givingUp);
      starts.withdraw();
      if (patience === undefined) {
        await stdin;
        detached = true;
        return;
      }
      await starting;
      if (!parts.isBroken() && run !== undefined) apply({ type: "quit" });
      await stdin;
      stop(patience);
      await gone;
    },
  };
}

const NEVER_STARTED: AgentExit = { code: null, signal: null, how: "exited", stderrTail: "" };

/** Which messages the conversation of a dead agent has; undefined = each counts as taken. */
export async function takenMessages(
  hosting: Pick<Hosting, "messagesTaken">,
  row: SessionRow,
  state: State,
  cliSessionId: string,
): Promise<ReadonlySet<string> | undefined> {
  if (row.spec.failsWithAgent === true) return undefined;
  return hasUnsureTurns(state) ? hosting.messagesTaken(row, cliSessionId) : new Set<string>();
}
