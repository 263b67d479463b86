import { randomUUID } from "node:crypto";
import type { StopPatience } from "../agents/port.ts";
import type { EventLog } from "../log/port.ts";
import { seq } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Write } from "../store/port.ts";
import { type AgentLink, createAgentLink, takenMessages } from "./agent-link.ts";
import { encodeDraft } from "./encode.ts";
import type { Hosting, JoinedRun } from "./hosting.ts";
import type { SessionMemory } from "./memory.ts";
import type { AuditNote, Decide, TurnEnd } from "./port.ts";
import { type SessionRow, saveInitialized, saveState } from "./rows.ts";
import type { Slots } from "./slots.ts";
import { hasAgent, type State, snapshotChanged } from "./state.ts";
import { type Signal, step } from "./step.ts";
import { createTimers, type Patience } from "./timers.ts";
import type { Draft, Outcome } from "./work.ts";

export interface EngineParts {
  readonly row: SessionRow;
  readonly log: EventLog;
  readonly memory: SessionMemory;
  readonly hosting: Hosting;
  readonly slots: Slots;
  readonly patience: Patience;
  readonly startTimeoutMs: number;
  readonly stopPatience: StopPatience;
  /** How long an idle process is kept; 0 = for ever. */
  readonly idleTimeoutMs: () => number;
  readonly now: () => number;
  readonly decide: Decide;
  /** The write that records a note; it goes into the transaction of the events that it belongs to. */
  readonly audit: (note: AuditNote, nowMs: number) => readonly Write[];
  /** Writes that tell others of a system event (webhooks), in the transaction of the event. */
  readonly outbox: (event: Draft, nowMs: number) => readonly Write[];
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
  /** The first thing after a server opened the session: goes on with its agent, or deals with its loss. */
  recover(joined: JoinedRun | undefined, jumped: boolean): Promise<void>;
  /** Stops the agent, or leaves it to its runner (undefined); nothing starts one again here. Resolves when all is durable. */
  shutDown(patience: StopPatience | undefined): Promise<void>;
  /** Since when its process has been idle; undefined when it is not. */
  idleSinceMs(): number | undefined;
  /** A setting has changed: timers look at it again. */
  touch(): void;
  /** The log could not be written: nothing more can be decided here. */
  broken(): boolean;
  /** Resolves when everything decided so far is durable. */
  settled(): Promise<void>;
}

export function createEngine(parts: EngineParts, initial: State, mark: number): Engine {
  const { row, log, memory, hosting, now } = parts;
  let state = initial;
  let broken = false;
  // The text of a message that streams is stored only when something else is: this is what the store has of it.
  let storedStreaming = initial.streaming;
  // Appends settle in order.
  let tail: Promise<void> = Promise.resolve();
  const messages = new Map<number, JsonObject>();

  const messageAt = async (number: number): Promise<JsonObject> => {
    const kept = messages.get(number);
    if (messages.delete(number) && kept !== undefined) return kept;
    const event = await log.read(seq(number));
    const envelope: unknown = event && JSON.parse(Buffer.from(event.envelope).toString("utf8"));
    if (isJsonObject(envelope) && isJsonObject(envelope.payload)) return envelope.payload;
    throw new BrokerError("internal", `The message at ${number} is not in the log.`);
  };

  const breakDown = (error: unknown): void => {
    if (broken) return;
    broken = true;
    timers.close();
    parts.failed(error);
    link.kill();
  };

  const tellEnded = async (outcome: Outcome, durable: Promise<void>): Promise<void> => {
    await durable;
    if (outcome.ended.length === 0) return;
    parts.turnsEnded(outcome.ended);
    const copied = await hosting.copyTranscript(row, state.cliSessionId);
    if (copied.length > 0) await log.append([], copied);
  };

  const apply: Engine["apply"] = (signal, writes) => {
    if (broken)
      throw new BrokerError("internal", "The session's log cannot be written; see the server's log, then restart it.");
    const before = state;
    const outcome = step(state, signal, { now: now(), newId: randomUUID, decide: parts.decide });
    state = outcome.state;
    const durable = append(before, outcome, writes);
    link.carryOut(outcome, durable);
    tail = tail.then(() => tellEnded(outcome, durable)).catch(breakDown);
    if (snapshotChanged(before, state)) {
      parts.changed();
      timers.watch(before);
    }
    return { outcome, durable };
  };

  const append = (before: State, outcome: Outcome, writes?: (events: readonly Draft[]) => Write[]): Promise<void> => {
    const timestamp = now();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => undefined);
    const isDurable = outcome.events.some((draft) => draft.preview !== true);
    const others = [
      ...(before.initialized === state.initialized ? [] : [saveInitialized(row.id, state.initialized)]),
      ...memory.note(outcome.events, timestamp, () => promise),
      ...outcome.events.flatMap((event) => (event.origin === "SYSTEM_EVENT" ? parts.outbox(event, timestamp) : [])),
      ...outcome.audits.flatMap((note) => parts.audit(note, timestamp)),
      ...outcome.mirrored.flatMap((line) => hosting.mirrorWrites(row.id, line)),
      ...(writes?.(outcome.events) ?? []),
    ];
    // What is stored must belong to one place in the agent's output: the text that streams, and without an event the last number given.
    const moved = isDurable ? state.streaming !== storedStreaming : others.length > 0;
    const changes = snapshotChanged(before, state) || moved;
    if (changes) storedStreaming = state.streaming;
    const all = changes ? [saveState(row.id, state, timestamp), ...others] : others;
    const events = outcome.events.map((draft) => encodeDraft(row.id, draft, timestamp));
    keepMessages(outcome);
    if (events.length === 0 && all.length === 0) {
      resolve();
      return promise;
    }
    // A new process counts its lines anew.
    const reached = state.run === before.run ? link.mark() : 0;
    log.append(events, all, outcome.edge, reached).then(resolve, reject);
    if (isDurable || all.length > 0)
      promise.then(
        () => link.acknowledge(state.run, reached),
        () => undefined,
      );
    return promise;
  };

  /** Commands whose payload is a line for the agent, now or later. */
  const keepMessages = ({ events, stdin, state: after }: Outcome): void => {
    for (const draft of events) {
      if ((draft.origin !== "USER_EVENT" && draft.origin !== "EXTERNAL_EVENT") || draft.payload instanceof Uint8Array)
        continue;
      const isLine =
        stdin.some(({ line }) => line === draft.seq) || after.queue.some(({ seq: at }) => at === draft.seq);
      if (isLine || after.held.includes(draft.seq)) messages.set(draft.seq, draft.payload);
    }
  };

  const quietly = (signal: Signal): void => {
    if (!broken) apply(signal);
  };
  const timers = createTimers({ ...parts, state: () => state, apply: quietly });
  const link: AgentLink = createAgentLink(
    { ...parts, state: () => state, apply, messageAt, isBroken: () => broken, breakDown, heard: timers.heard },
    mark,
  );

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
    idleSinceMs: timers.idleSinceMs,
    touch: timers.touch,
    settled,
    async recover(joined, jumped) {
      if (joined !== undefined) {
        if (joined.isAway) apply({ type: "recovered_away" });
        await link.join(joined, row.reserved);
      } else {
        const taken = hasAgent(state)
          ? await takenMessages(hosting, row, state, state.cliSessionId)
          : new Set<string>();
        apply({ type: "recovered", jumped, taken, continues: row.spec.onCrash === "continue" });
      }
      timers.watch(undefined);
      await settled();
    },
    async shutDown(patience) {
      await link.close(patience);
      timers.close();
      await settled();
    },
  };
}
