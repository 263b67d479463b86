import { randomUUID } from "node:crypto";
import type { Agent, AgentHandlers, StopPatience } from "../agents/port.ts";
import type { EventLog } from "../log/port.ts";
import { seq } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Write } from "../store/port.ts";
import { encodeDraft } from "./encode.ts";
import type { Hosting } from "./hosting.ts";
import type { SessionMemory } from "./memory.ts";
import type { AuditNote, Decide, TurnEnd } from "./port.ts";
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
  readonly decide: Decide;
  /** The write that records a note; it goes into the transaction of the events that it belongs to. */
  readonly audit: (note: AuditNote, nowMs: number) => readonly Write[];
  /** Writes that tell others of a system event (webhooks), in the transaction of the event. */
  readonly outbox: (event: Draft, nowMs: number) => readonly Write[];
  /** How long a client that serves hooks or MCP servers may be away. */
  readonly ownerGraceMs: number;
  /** How long the CLI may take to answer a control_request of this subtype, in milliseconds. */
  readonly controlTimeoutMs: (subtype: string) => number;
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
  /** The log could not be written: nothing more can be decided here. */
  broken(): boolean;
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
    const outcome = step(state, signal, { now: now(), newId: randomUUID, decide: parts.decide });
    state = outcome.state;
    if (outcome.lifecycle === "start") starting = start();
    if (outcome.lifecycle === "stop") void stopAgent();
    const durable = append(before, outcome, writes);
    const target = agent;
    tail = tail.then(() => tellEnded(outcome, durable)).catch(breakDown);
    if (outcome.stdin.length > 0) stdin = stdin.then(() => writeStdin(outcome, durable, target)).catch(breakDown);
    if (snapshotChanged(before, state)) {
      parts.changed();
      watchDue(before);
    }
    return { outcome, durable };
  };

  /** Timers of what is new: a request that its policy lets expire, a control_request that has to be answered. */
  const watchDue = (before: State): void => {
    const later = (ms: number, signal: Signal): void => {
      // A timer may fire a little early; the step holds it against the clock.
      setTimeout(() => !broken && apply(signal), Math.max(0, ms) + 5).unref();
    };
    for (const { request_id, expires_at_ms } of state.requests) {
      const isNew = !before.requests.some((request) => request.request_id === request_id);
      if (isNew && expires_at_ms !== undefined)
        later(expires_at_ms - now(), { type: "request_due", requestId: request_id });
    }
    for (const owner of state.owners) {
      const wasHere = before.owners.find((item) => item.id === owner.id)?.connectionId !== undefined;
      const isAsked = state.requests.some(
        (request) => request.owner === owner.id && !before.requests.includes(request),
      );
      if (owner.connectionId === undefined && (wasHere || isAsked))
        later(parts.ownerGraceMs, { type: "owner_due", owner: owner.id, awaySinceMs: owner.awaySinceMs });
    }
    for (const { requestId, subtype } of state.pending) {
      const isNew = !before.pending.some((pending) => pending.requestId === requestId);
      if (isNew) later(parts.controlTimeoutMs(subtype), { type: "control_due", requestId });
    }
  };

  const append = (before: State, outcome: Outcome, writes?: (events: readonly Draft[]) => Write[]): Promise<void> => {
    const timestamp = now();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => undefined);
    const events = outcome.events.map((draft) => encodeDraft(row.id, draft, timestamp));
    for (const draft of outcome.events) {
      if (draft.event_type === "query" && !(draft.payload instanceof Uint8Array))
        messages.set(draft.seq, draft.payload);
    }
    const all = [
      ...(snapshotChanged(before, state) ? [saveState(row.id, state, timestamp)] : []),
      ...memory.note(outcome.events, timestamp, () => promise),
      ...outcome.events.flatMap((event) => (event.origin === "SYSTEM_EVENT" ? parts.outbox(event, timestamp) : [])),
      ...outcome.audits.flatMap((note) => parts.audit(note, timestamp)),
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
    broken: () => broken,
    settled,
    async shutDown(patience) {
      closing = true;
      await starting;
      await stopAgent(patience);
      await settled();
    },
  };
}
