import type { EventLog } from "../log/port.ts";
import type { Accepted, Command } from "../protocol/commands.ts";
import type { SessionView } from "../protocol/events.ts";
import { seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import { createEngine, type Engine, type EngineParts } from "./engine.ts";
import { commandHash, createMemory, noteHash, type SessionMemory } from "./memory.ts";
import { agentMounting, type RowChange, refuseAgentless, relabel } from "./mounting.ts";
import type { Actor, Note, Session, TurnEnd } from "./port.ts";
import { type SessionRow, type Spec, saveLabels, viewOf } from "./rows.ts";
import type { State } from "./state.ts";
import type { Signal } from "./step.ts";
import { findTurnEnd, turnOfCommand } from "./turn-ends.ts";

export interface SessionParts extends Omit<EngineParts, "memory" | "turnsEnded" | "row" | "idleTimeoutMs"> {
  readonly row: SessionRow;
  /** For sessions that say nothing of their own, in milliseconds. */
  readonly defaultIdleTimeoutMs: number;
  readonly store: Store;
  readonly log: EventLog;
  /** The runner that dials in which it lives on, if it does. */
  readonly runnerName: () => string | undefined;
}

/** A session, and what only its manager may do with it. */
export interface ManagedSession extends Session {
  readonly engine: Engine;
  readonly spec: Spec;
}

type Taken = Accepted & { readonly durable: Promise<void> };

export function createSession(parts: SessionParts, initial: State): ManagedSession {
  const { store, log, now } = parts;
  const { id, tenant } = parts.row;
  let { row } = parts;
  const memory = createMemory(id, store, log);
  const waiting = new Map<string, PromiseWithResolvers<TurnEnd>>();
  const turnsEnded = (ends: readonly TurnEnd[]): void => {
    for (const end of ends) {
      waiting.get(end.turn_id)?.resolve(end);
      waiting.delete(end.turn_id);
    }
    ended.check();
  };
  const idleTimeoutMs = (): number => {
    const { idleTimeoutS } = row.spec;
    return idleTimeoutS === undefined ? parts.defaultIdleTimeoutMs : idleTimeoutS * 1000;
  };
  const current: SessionRow = {
    ...row,
    get spec() {
      return row.spec;
    },
  };
  const engine = createEngine(
    { ...parts, row: current, memory, turnsEnded, idleTimeoutMs, changed: () => changed() },
    initial,
    row.mark,
  );
  const ended = whenEnded(engine);
  const changed = (): void => {
    ended.check();
    parts.changed();
  };
  const take = createIntake(engine, memory);

  const waitFor = (turnId: string): Promise<TurnEnd> => {
    const known = waiting.get(turnId) ?? Promise.withResolvers<TurnEnd>();
    waiting.set(turnId, known);
    return known.promise;
  };

  const view = (): SessionView => viewOf(row, engine.state(), log.head(), parts.runnerName());
  let updating: Promise<unknown> = Promise.resolve();
  /** One after the other: each starts from what the one before it has stored. */
  const update = (change: (row: SessionRow) => RowChange, actor: Actor): Promise<SessionView> => {
    const updated = updating.then(async () => {
      const updatedAtMs = now();
      const { row: changed, subtype, decision } = change(row);
      const next = { ...changed, updatedAtMs };
      const note = { kind: "session", actor, subtype, decision, outcome: "accepted" } as const;
      await store.write([saveLabels(next, updatedAtMs), ...parts.audit(note, updatedAtMs)]);
      row = next;
      engine.touch();
      parts.changed();
      return view();
    });
    updating = updated.catch(() => undefined);
    return updated;
  };
  const apply = (signal: Signal): Promise<void> => engine.apply(signal).durable;

  const isOpen = (turnId: string): boolean =>
    [...engine.state().turns, ...engine.state().queue].some((turn) => turn.turnId === turnId);

  return {
    id,
    tenant,
    log,
    engine,
    get spec() {
      return row.spec;
    },
    view,
    standing() {
      const head = log.head();
      const { requests, told, seq: decided } = engine.state();
      // What was opened beyond head comes to the subscriber as an event: offered once, either here or there (contract 5).
      return {
        head,
        state: told,
        openRequests: requests.filter((request) => request.seq <= head),
        finished: told === "ended" && head >= decided,
      };
    },
    async command(command, actor) {
      refuseAgentless(row);
      const { durable, ...accepted } = await take.command(command, actor);
      await durable;
      return accepted;
    },
    async note(note, actor) {
      const { durable, ...accepted } = await take.note(note, actor);
      await durable;
      return accepted;
    },
    async turn(command, actor) {
      refuseAgentless(row);
      const { durable, ...accepted } = await take.command(command, actor);
      await durable;
      const turn_id = await turnOfCommand(log, accepted.seq);
      const end = isOpen(turn_id)
        ? waitFor(turn_id)
        : engine.settled().then(() => findTurnEnd(log, turn_id, accepted.seq));
      return { ...accepted, turn_id, ended: end };
    },
    update: (patch, actor) => update((row) => relabel(row, patch), actor),
    ...agentMounting({ row: () => row, state: engine.state, update, apply }),
    async register(actor, registration) {
      const name = registration.owner === undefined ? "" : `/${registration.owner}`;
      const owner = `${actor.id}${name}`;
      const { durable } = engine.apply({
        type: "register",
        owner,
        connectionId: actor.connection_id,
        registration,
      });
      await durable;
      return owner;
    },
    unregister(connectionId) {
      const isOwner = engine.state().owners.some((owner) => owner.connectionId === connectionId);
      if (isOwner && !engine.broken()) engine.apply({ type: "unregister", connectionId });
    },
    async end() {
      engine.apply({ type: "end" });
      ended.check();
      await ended.promise;
      await engine.settled();
    },
  };
}

function whenEnded(engine: Engine): { promise: Promise<void>; check: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const check = (): void => {
    if (engine.state().phase.name === "ended") resolve();
  };
  return { promise, check };
}

interface Intake {
  command(command: Command, actor: Actor): Promise<Taken>;
  note(note: Note, actor: Actor): Promise<Taken>;
}

/** One after the other: is it a repeat, are its ids fresh, then one step. Durability is waited for outside, so commands pipeline. */
function createIntake(engine: Engine, memory: SessionMemory): Intake {
  let line: Promise<unknown> = Promise.resolve();

  const takeOne = async (id: string, hash: string, actor: Actor, signal: () => Promise<Signal>): Promise<Taken> => {
    const known = await memory.command(actor.id, id);
    if (known !== undefined) {
      if (known.hash === hash) return { seq: seq(known.seq), duplicate: true, durable: known.durable };
      throw new BrokerError("id_reused", "This command id was used before with another body; use a new id.", {
        details: { id },
      });
    }
    const wanted = await signal();
    let number = 0;
    const { durable } = engine.apply(wanted, (events) => {
      number = events[0]?.seq ?? 0;
      return [memory.commandWrite(actor.id, id, hash, number)];
    });
    memory.keepCommand(actor.id, id, { hash, seq: number, durable });
    return { seq: seq(number), durable };
  };

  const inLine = (take: () => Promise<Taken>): Promise<Taken> => {
    const taken = line.then(take);
    line = taken.catch(() => undefined);
    return taken;
  };

  const fresh = async (command: Command, actor: Actor): Promise<Signal> => {
    await memory.refuseUsed(command);
    if (command.event_type === "control_response")
      await refuseSettled(engine, memory, command.payload.response.request_id);
    return { type: "command", command, actor };
  };

  return {
    command: (command, actor) =>
      inLine(() => takeOne(command.id, commandHash(command), actor, () => fresh(command, actor))),
    note: (note, actor) =>
      inLine(() => takeOne(note.id, noteHash(note), actor, async () => ({ type: "note", note, actor }))),
  };
}

async function refuseSettled(engine: Engine, memory: SessionMemory, requestId: string): Promise<void> {
  if (engine.state().requests.some((request) => request.request_id === requestId)) return;
  await memory.settledError(requestId);
}
