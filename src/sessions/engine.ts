import { randomUUID } from "node:crypto";
import type { Agent, AgentHandlers, StopPatience } from "../agents/port.ts";
import type { EventLog, NewEvent } from "../log/port.ts";
import { seq, sessionId } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Write } from "../store/port.ts";
import type { Hosting } from "./hosting.ts";
import type { SessionMemory } from "./memory.ts";
import type { TurnEnd } from "./port.ts";
import { type SessionRow, saveState } from "./rows.ts";
import { type State, snapshotChanged } from "./state.ts";
import { type Signal, step } from "./step.ts";
import type { Draft, Outcome } from "./work.ts";

/** Agent output that may be waiting for the disk before stdout is read no further, in bytes. */
const UNCOMMITTED_LIMIT_BYTES = 8 * 1024 * 1024;

export interface EngineParts {
  readonly row: SessionRow;
  readonly log: EventLog;
  readonly memory: SessionMemory;
  readonly hosting: Hosting;
  readonly startTimeoutMs: number;
  readonly stopPatience: StopPatience;
  readonly now: () => number;
  /** After each step that changed what `view` shows. */
  readonly changed: () => void;
  /** Turns that have their terminal event, durable. */
  readonly turnsEnded: (ends: readonly TurnEnd[]) => void;
  readonly failed: (error: unknown) => void;
}

/** Carries out what `step` decides: appends first, then stdin, then the agent's life. The only caller of `step` of its session. */
export interface Engine {
  state(): State;
  /** One step. `durable` settles with its append; a refused command throws and nothing has happened. */
  apply(signal: Signal, writes?: (events: readonly Draft[]) => Write[]): { outcome: Outcome; durable: Promise<void> };
  /** Stops the agent, if there is one, for good: nothing starts it again here. Resolves when its exit is durable. */
  shutDown(patience: StopPatience): Promise<void>;
  /** Resolves when everything decided so far is durable. */
  settled(): Promise<void>;
}

export function createEngine(parts: EngineParts, initial: State): Engine {
  const { row, log, memory, hosting, now } = parts;
  let state = initial;
  let agent: Agent | undefined;
  let starting: Promise<void> = Promise.resolve();
  let closing = false;
  let broken = false;
  let uncommittedBytes = 0;
  let startFault: string | undefined;
  // Appends settle in order. Lines for stdin wait for theirs (design 2: durable first, stdin second) in a chain of their own: an agent that
  // does not read holds up nothing else.
  let tail: Promise<void> = Promise.resolve();
  let stdin: Promise<void> = Promise.resolve();
  const messages = new Map<number, JsonObject>();

  const encode = (draft: Draft, timestamp_ms: number): NewEvent => {
    const { seq: number, payload, restricted, echo_of, ...head } = draft;
    const bytes = payload instanceof Uint8Array ? payload : Buffer.from(JSON.stringify(payload), "utf8");
    return {
      head: {
        session_id: sessionId(row.id),
        seq: seq(number),
        event_type: head.event_type,
        origin: head.origin,
        source: head.source,
        timestamp_ms,
        ...(head.turn_id !== undefined && { turn_id: head.turn_id }),
        ...(head.command_id !== undefined && { command_id: head.command_id }),
        ...(head.preview && { preview: true as const }),
        ...(echo_of !== undefined && { echo_of: seq(echo_of) }),
      },
      payload: bytes,
      ...(restricted && { restricted }),
    };
  };

  const messageAt = async (number: number): Promise<JsonObject> => {
    const kept = messages.get(number);
    if (kept !== undefined) return kept;
    const event = await log.read(seq(number));
    const envelope: unknown = event && JSON.parse(Buffer.from(event.envelope).toString("utf8"));
    if (isJsonObject(envelope) && isJsonObject(envelope.payload)) return envelope.payload;
    throw new BrokerError("internal", `The message at ${number} is not in the log.`);
  };

  const breakDown = (error: unknown): void => {
    if (broken) return;
    broken = true;
    parts.failed(error);
    void agent?.stop({ eofMs: 0, termMs: 0 });
  };

  const tellEnded = async (outcome: Outcome, durable: Promise<void>): Promise<void> => {
    await durable;
    if (outcome.ended.length > 0) parts.turnsEnded(outcome.ended);
  };

  /** Lines go to the agent that lived when they were decided on, never to a later one; its exit has closed what waited for them. */
  const writeStdin = async (outcome: Outcome, durable: Promise<void>, target: Agent | undefined): Promise<void> => {
    await durable;
    for (const line of outcome.stdin) {
      await target?.write(typeof line === "number" ? await messageAt(line) : line);
      if (typeof line === "number") messages.delete(line);
    }
  };

  const apply: Engine["apply"] = (signal, writes) => {
    if (broken)
      throw new BrokerError("internal", "The session's log cannot be written; see the server's log, then restart it.");
    const before = state;
    const outcome = step(state, signal, { now: now(), newId: randomUUID });
    state = outcome.state;
    if (outcome.lifecycle === "start") starting = start();
    if (outcome.lifecycle === "stop") void stopAgent();
    const durable = append(before, outcome, writes);
    const target = agent;
    tail = tail.then(() => tellEnded(outcome, durable)).catch(breakDown);
    if (outcome.stdin.length > 0) stdin = stdin.then(() => writeStdin(outcome, durable, target)).catch(breakDown);
    if (snapshotChanged(before, state)) parts.changed();
    return { outcome, durable };
  };

  const append = (before: State, outcome: Outcome, writes?: (events: readonly Draft[]) => Write[]): Promise<void> => {
    const timestamp = now();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => undefined);
    const events = outcome.events.map((draft) => encode(draft, timestamp));
    for (const draft of outcome.events) {
      if (draft.event_type === "query" && !(draft.payload instanceof Uint8Array))
        messages.set(draft.seq, draft.payload);
    }
    const all = [
      ...(snapshotChanged(before, state) ? [saveState(row.id, state, timestamp)] : []),
      ...memory.note(outcome.events, timestamp, () => promise),
      ...(writes?.(outcome.events) ?? []),
    ];
    if (events.length === 0 && all.length === 0) resolve();
    else log.append(events, all, outcome.edge).then(resolve, reject);
    return promise;
  };

  const handlers: AgentHandlers = {
    output: (lines) => {
      if (broken) return;
      const { durable, outcome } = apply({ type: "output", lines, lineLimitBytes: hosting.lineLimitBytes });
      const bytes = outcome.events.reduce(
        (sum, event) => sum + (event.payload instanceof Uint8Array ? event.payload.length : 0),
        0,
      );
      uncommittedBytes += bytes;
      const committed = durable.finally(() => {
        uncommittedBytes -= bytes;
      });
      const quiet = committed.catch(() => undefined);
      return uncommittedBytes > UNCOMMITTED_LIMIT_BYTES ? quiet : undefined;
    },
    exited: (exit) => {
      agent = undefined;
      const fault = startFault === undefined ? {} : { spawnError: startFault };
      startFault = undefined;
      if (!broken) apply({ type: "exited", exit: { ...exit, ...fault } });
    },
  };

  async function start(): Promise<void> {
    const { phase } = state;
    if (closing || phase.name !== "starting") return;
    try {
      const started = await hosting.start(row, state.cliSessionId, handlers);
      if (started.agent.pid === undefined) return;
      agent = started.agent;
      apply({ type: "spawned", pid: started.agent.pid, process: started.process, resumed: started.resumed });
      if (state.phase.name !== "starting" || closing) return await stopAgent();
      watchStart(started.agent, phase.initializeId);
    } catch (error) {
      const spawnError = error instanceof Error ? error.message : String(error);
      apply({ type: "exited", exit: { code: null, signal: null, how: "exited", stderrTail: "", spawnError } });
    }
  }

  /** A CLI that never answers initialize is stopped; its exit fails the session with what stderr said. */
  const watchStart = (started: Agent, initializeId: string): void => {
    const timer = setTimeout(() => {
      const { phase } = state;
      if (phase.name !== "starting" || phase.initializeId !== initializeId) return;
      startFault = `it did not answer initialize within ${parts.startTimeoutMs} ms`;
      void started.stop({ eofMs: 0, termMs: 1000 });
    }, parts.startTimeoutMs);
    timer.unref();
  };

  /** The ladder's first rung is an interrupt, so that the CLI can close a running turn itself. */
  async function stopAgent(patience: StopPatience = parts.stopPatience): Promise<void> {
    if (state.turns.length > 0) {
      void agent?.write({
        type: "control_request",
        request_id: `broker-${randomUUID()}`,
        request: { subtype: "interrupt" },
      });
    }
    await agent?.stop(patience);
  }

  const settled = async (): Promise<void> => {
    for (let seen: Promise<void> | undefined; seen !== tail; ) {
      seen = tail;
      await seen;
    }
  };

  return {
    state: () => state,
    apply,
    settled,
    async shutDown(patience) {
      closing = true;
      await starting;
      await stopAgent(patience);
      await settled();
    },
  };
}
