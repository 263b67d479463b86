import { isJsonObject, type JsonObject, stringField } from "../../protocol/json.ts";
import type { LogEvent } from "../../sessions/port.ts";

/** A line that crossed the agent's pipes. `at`: its payload stands in the event of that number, shown before. */
export type Crossing = {
  readonly dir: "send" | "recv";
  readonly atMs: number;
  /** Not shown below driver (contract 5). */
  readonly restricted: boolean;
  /** What it says of accounts and credentials is not shown to anybody. */
  readonly redacts: boolean;
} & ({ readonly payload: Uint8Array } | { readonly at: number });

/** Puts a log's events, handed in one after the other from the first, into the order of the agent's pipes. */
export interface PipeOrder {
  /** What is known to have crossed by now. */
  take(event: LogEvent): readonly Crossing[];
  /** The log has a hole: what is known of the agent's state may be wrong. */
  gap(): void;
  /** What the last event leaves undecided, decided. */
  finish(): readonly Crossing[];
}

interface Sent {
  readonly atMs: number;
  readonly payload: Uint8Array;
  readonly commandId: string;
  readonly redacts: boolean;
}

interface Queued {
  readonly turnId: string;
  readonly seq: number;
  /** Goes out as soon as the agent can read, whatever runs. */
  readonly atOnce: boolean;
}

const MARK = Buffer.from(',"payload":');

/** An envelope's fields but for the payload, which is cut out as it came: it may have 64 MiB, and few are looked into. */
function split(envelope: Uint8Array): { head: JsonObject; payload: Uint8Array } {
  const bytes = Buffer.from(envelope.buffer, envelope.byteOffset, envelope.byteLength);
  // Inside a string of the head these quotes would be escaped, so the first find is the field itself.
  const at = bytes.indexOf(MARK);
  const head: unknown = JSON.parse(`${bytes.toString("utf8", 0, at)}}`);
  return { head: isJsonObject(head) ? head : {}, payload: bytes.subarray(at + MARK.length, bytes.length - 1) };
}

/** The payload's bytes of an event. */
export const payloadOf = (event: LogEvent): Uint8Array => split(event.envelope).payload;

function parse(payload: Uint8Array): JsonObject {
  const value: unknown = JSON.parse(Buffer.from(payload).toString("utf8"));
  return isJsonObject(value) ? value : {};
}

const numberOf = (head: JsonObject, field: string): number => {
  const value = head[field];
  return typeof value === "number" ? value : Number.NaN;
};

export function createPipeOrder(): PipeOrder {
  /** The agent has answered initialize, and has not gone since. */
  let live = false;
  let starting = false;
  let queued: readonly Queued[] = [];
  /** control_requests that wait for the agent to start. */
  let held: readonly Sent[] = [];
  /** Written, unless the next event says that the broker has kept it. */
  let undecided: Sent | undefined;

  const sendSent = ({ payload, redacts }: Sent, atMs: number): Crossing => ({
    dir: "send",
    atMs,
    restricted: false,
    redacts,
    payload,
  });

  /** Messages leave the queue. Only their numbers were kept: together they may be larger than memory. */
  const write = (wanted: (one: Queued) => boolean, atMs: number): Crossing[] => {
    const written = queued.filter(wanted);
    queued = queued.filter((one) => !wanted(one));
    return written.map(({ seq }) => ({ dir: "send", atMs, restricted: false, redacts: false, at: seq }));
  };

  const drop = (turnId: string): void => {
    queued = queued.filter((one) => one.turnId !== turnId);
  };

  /** The broker's answer comes in the step of the command, so at the same time; a first of two approvals settles nothing. */
  const wasKept = (sent: Sent, head: JsonObject): boolean => {
    const sameStep = numberOf(head, "timestamp_ms") === sent.atMs;
    const answered = head.source === "broker" && head.event_type === "control_response";
    return sameStep && ((answered && head.command_id === sent.commandId) || head.event_type === "request.approved");
  };

  const decide = (head: JsonObject | undefined): Crossing[] => {
    const sent = undecided;
    undecided = undefined;
    if (sent === undefined || (head !== undefined && wasKept(sent, head))) return [];
    return [sendSent(sent, sent.atMs)];
  };

  const onCommand = (head: JsonObject, payload: Uint8Array): Crossing[] => {
    const seq = numberOf(head, "seq");
    const atMs = numberOf(head, "timestamp_ms");
    const commandId = stringField(head, "command_id") ?? "";
    const sent = { atMs, payload, commandId, redacts: head.event_type === "control_request" };
    switch (head.event_type) {
      case "query":
        queued = [...queued, { turnId: stringField(head, "turn_id") ?? "", seq, atOnce: false }];
        return [];
      case "control_request":
        // The broker sends its own initialize, and gives every client that answer.
        if (stringField(parse(payload).request, "subtype") === "initialize") return [];
        if (live) undecided = sent;
        else held = [...held, sent];
        return [];
      case "control_response":
        undecided = sent;
        return [];
      default:
        return live ? [sendSent(sent, atMs)] : [];
    }
  };

  const onBroker = (head: JsonObject, payload: Uint8Array): Crossing[] => {
    const atMs = numberOf(head, "timestamp_ms");
    const turnId = stringField(head, "turn_id") ?? "";
    switch (head.event_type) {
      case "turn.queued":
        if (stringField(parse(payload), "delivery") !== "at_once") return [];
        if (live) return write((one) => one.turnId === turnId, atMs);
        queued = queued.map((one) => (one.turnId === turnId ? { ...one, atOnce: true } : one));
        return [];
      case "turn.started":
        return [...write((one) => one.turnId === turnId, atMs), ...(live ? write((one) => one.atOnce, atMs) : [])];
      case "turn.completed":
      case "turn.failed":
        // Withdrawn, or failed before the agent had it. One that the agent had is not in the queue any more.
        drop(turnId);
        return [];
      case "agent.started":
        starting = true;
        return [];
      case "agent.exited":
      case "session.recovered":
        live = false;
        starting = false;
        held = [];
        return [];
      default:
        return [];
    }
  };

  /** The first answer of a process is the one to initialize; what waited for it is written next, controls first. */
  const becameLive = (head: JsonObject, payload: Uint8Array): Crossing[] => {
    if (!starting || head.event_type !== "control_response" || head.command_id !== undefined) return [];
    if (stringField(parse(payload).response, "subtype") !== "success") return [];
    starting = false;
    live = true;
    const written = held.map((sent) => sendSent(sent, numberOf(head, "timestamp_ms")));
    held = [];
    return written;
  };

  const onAgent = (event: LogEvent, head: JsonObject, payload: Uint8Array): Crossing[] => {
    if (head.source === "broker") {
      held = held.filter((sent) => sent.commandId !== head.command_id);
      return [];
    }
    const atMs = numberOf(head, "timestamp_ms");
    const echoed = numberOf(head, "echo_of");
    const line: Crossing = { dir: "recv", atMs, restricted: event.restricted, redacts: event.restricted, payload };
    return [...write((one) => one.seq === echoed, atMs), line, ...becameLive(head, payload)];
  };

  const cross = (event: LogEvent, head: JsonObject, payload: Uint8Array): Crossing[] => {
    // What has no command_id was only kept: no agent has had it.
    if (head.origin === "USER_EVENT" || head.origin === "EXTERNAL_EVENT")
      return head.command_id === undefined ? [] : onCommand(head, payload);
    if (head.origin === "SYSTEM_EVENT") return onBroker(head, payload);
    return head.origin === "AGENT_EVENT" ? onAgent(event, head, payload) : [];
  };

  return {
    take(event) {
      const { head, payload } = split(event.envelope);
      return [...decide(head), ...cross(event, head, payload)];
    },
    gap() {
      live = true;
    },
    finish: () => decide(undefined),
  };
}
