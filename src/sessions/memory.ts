import { createHash } from "node:crypto";
import type { EventLog } from "../log/port.ts";
import type { Command } from "../protocol/commands.ts";
import { seq } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store, Write } from "../store/port.ts";
import type { Note } from "./port.ts";
import type { Draft } from "./work.ts";

/** A command that was taken before: its number, what it said, and when it is (or was) durable. */
export interface KnownCommand {
  readonly hash: string;
  readonly seq: number;
  readonly durable: Promise<void>;
}

/** What two commands of one id must agree in. */
export function commandHash(command: Command): string {
  const delivery = command.event_type === "query" ? command.delivery : "";
  return hashOf([command.event_type, delivery, command.payload]);
}

export const noteHash = ({ event_type, origin, payload }: Note): string =>
  hashOf([event_type, origin, Buffer.from(payload).toString("utf8")]);

const hashOf = (value: unknown): string => createHash("sha256").update(JSON.stringify(value)).digest("hex");

type IdKind = "turn" | "control" | "request";

/** Ids that a session has used, for as long as it exists: in the store, and those on their way there. */
export interface SessionMemory {
  command(actorId: string, id: string): Promise<KnownCommand | undefined>;
  /** Remembers a command together with its append: returns the write, and forgets the copy here once that is durable. */
  keepCommand(actorId: string, id: string, known: KnownCommand): void;
  commandWrite(actorId: string, id: string, hash: string, seq: number): Write;
  /** @throws BrokerError id_reused, request_id_in_use */
  refuseUsed(command: Command): Promise<void>;
  /** Notes the ids that these events use. Returns the writes that go into their append. */
  note(events: readonly Draft[], now: number, durable: () => Promise<void>): Write[];
  /** Why a request is no longer open. @throws BrokerError always */
  settledError(requestId: string): Promise<never>;
}

export function createMemory(sessionId: string, store: Store, log: EventLog): SessionMemory {
  const commands = new Map<string, KnownCommand>();
  const recent = new Map<string, number>();
  const settled = new Map<string, { readonly resolved: JsonObject; readonly atMs: number }>();

  const used = async (kind: IdKind, id: string): Promise<number | undefined> => {
    const known = recent.get(`${kind} ${id}`);
    if (known !== undefined) return known;
    const [row] = await store.read("SELECT seq FROM used_ids WHERE session = ? AND kind = ? AND id = ?", [
      sessionId,
      kind,
      id,
    ]);
    return row && Number(row.seq);
  };

  const noteId = (kind: IdKind, id: string, seq: number, durable: () => Promise<void>): Write => {
    const key = `${kind} ${id}`;
    recent.set(key, seq);
    void durable().then(
      () => recent.delete(key),
      () => undefined,
    );
    return {
      sql: "INSERT OR IGNORE INTO used_ids (session, kind, id, seq) VALUES (?, ?, ?, ?)",
      params: [sessionId, kind, id, seq],
    };
  };

  return {
    async command(actorId, id) {
      const known = commands.get(`${actorId} ${id}`);
      if (known !== undefined) return known;
      const [row] = await store.read("SELECT hash, seq FROM commands WHERE session = ? AND principal = ? AND id = ?", [
        sessionId,
        actorId,
        id,
      ]);
      return row && { hash: String(row.hash), seq: Number(row.seq), durable: Promise.resolve() };
    },
    keepCommand(actorId, id, known) {
      const key = `${actorId} ${id}`;
      commands.set(key, known);
      void known.durable.then(
        () => commands.delete(key),
        () => undefined,
      );
    },
    commandWrite: (actorId, id, hash, seq) => ({
      sql: "INSERT INTO commands (session, principal, id, hash, seq) VALUES (?, ?, ?, ?, ?)",
      params: [sessionId, actorId, id, hash, seq],
    }),
    async refuseUsed(command) {
      if (command.event_type === "query" && command.payload.uuid !== undefined) {
        if ((await used("turn", command.payload.uuid)) === undefined) return;
        throw new BrokerError(
          "id_reused",
          "payload.uuid: this session has had a message with that uuid; leave it out or make a new one.",
          {
            details: { field: "payload.uuid" },
          },
        );
      }
      if (
        command.event_type === "control_request" &&
        (await used("control", command.payload.request_id)) !== undefined
      ) {
        throw new BrokerError("request_id_in_use", "This session has used that request_id before; choose a new one.", {
          details: { request_id: command.payload.request_id },
        });
      }
    },
    note(events, now, durable) {
      return events.flatMap((event) => {
        if (event.payload instanceof Uint8Array) return [];
        if (event.event_type === "query" && event.turn_id !== undefined)
          return [noteId("turn", event.turn_id, event.seq, durable)];
        const requestId = typeof event.payload.request_id === "string" ? event.payload.request_id : undefined;
        if (requestId === undefined) return [];
        if (event.event_type === "control_request" && event.origin === "USER_EVENT")
          return [noteId("control", requestId, event.seq, durable)];
        if (event.event_type !== "request.resolved") return [];
        settled.set(requestId, { resolved: event.payload, atMs: now });
        void durable().then(
          () => settled.delete(requestId),
          () => undefined,
        );
        return [noteId("request", requestId, event.seq, durable)];
      });
    },
    async settledError(requestId) {
      const fresh = settled.get(requestId);
      if (fresh !== undefined) throw settledProblem(fresh.resolved, fresh.atMs);
      const at = await used("request", requestId);
      const event = at === undefined ? undefined : await log.read(seq(at));
      const envelope: unknown = event && JSON.parse(Buffer.from(event.envelope).toString("utf8"));
      if (isJsonObject(envelope) && isJsonObject(envelope.payload))
        throw settledProblem(envelope.payload, envelope.timestamp_ms);
      throw new BrokerError("request_unknown", "This session has no request with that id; read GET …/requests.", {
        details: { request_id: requestId },
      });
    },
  };
}

function settledProblem(resolved: JsonObject, at: unknown): BrokerError {
  const { request_id, outcome, decided_by, decision } = resolved;
  if (outcome !== "answered") {
    return new BrokerError("request_settled", `The request is ${String(outcome)}; nothing waits for an answer.`, {
      details: { request_id, outcome },
    });
  }
  return new BrokerError("request_already_answered", `${String(decided_by)} answered first; nothing more to do.`, {
    details: { request_id, decided_by, decision, at_ms: at },
  });
}
