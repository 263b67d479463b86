import { hash } from "node:crypto";
import { isJsonObject, type JsonObject } from "./json.ts";

/** One event as a reader saw it on the wire. Bytes are kept as their hash. */
export interface Sight {
  readonly seq: number;
  readonly event_type: string;
  readonly origin: string;
  readonly source: string;
  readonly preview: boolean;
  readonly turn_id?: string;
  readonly command_id?: string;
  /** Hash of the envelope without its payload; of a preview also without its time, which a second reading after a crash may change. */
  readonly head: string;
  /** Hash of the payload's bytes. */
  readonly body: string;
  /** The payload, where it is small and not a preview. */
  readonly fact?: JsonObject;
}

/** One subscription, stream, or run of pages: what came after the cursor it began with. */
export interface Visit {
  readonly after: number;
  readonly sights: Sight[];
}

/** One client over all its connections. Each visit begins at the last number that it had seen. */
export interface Reader {
  readonly name: string;
  readonly visits: Visit[];
  /** What the server said to it that no promise allows (a cursor ahead of the head, a gap). */
  readonly complaints: string[];
}

/** What a client wanted, under one id, and all that it was told about it. */
export interface Sent {
  readonly id: string;
  readonly event_type: "query" | "control_request" | "control_response";
  /** Of a query its turn; of the others the request_id. */
  readonly names: string;
  /** Of a query its text. */
  readonly text?: string;
  readonly acks: number[];
  /** Codes of final refusals (`retry: false`). */
  readonly refusals: string[];
}

/** One line of an agent's journal. `took`: the user message is in its transcript from here on. */
export interface JournalRecord {
  /** Milliseconds of the clock that all processes of the machine share. */
  readonly at: number;
  readonly dir: "in" | "out" | "took";
  readonly type: string;
  /** Hash of the line's bytes. */
  readonly body: string;
  readonly uuid?: string;
  readonly request_id?: string;
}

/** What one agent process wrote down of its own stdin and stdout, oldest first. A line of stdout is there before it is written. */
export interface Journal {
  readonly pid: number;
  /** The runner that started it. */
  readonly runner: number;
  readonly startedAt: number;
  /** Other processes of the session that lived when it began. */
  readonly others: readonly number[];
  readonly records: readonly JournalRecord[];
}

/** All that is known of one session from outside. */
export interface SessionHistory {
  readonly id: string;
  /** The whole log, read when all was over. */
  readonly log: readonly Sight[];
  readonly readers: readonly Reader[];
  readonly journals: readonly Journal[];
  readonly sent: readonly Sent[];
  /** Where the agents are real: all that the model was told, request by request. There are no journals then. */
  readonly told?: readonly string[];
  /** The turn that was asked for when the faults had ended. */
  readonly probe: string;
}

/** What a run leaves for the checker. */
export interface History {
  readonly sessions: readonly SessionHistory[];
  /** Runners that were killed: what their agents had said and nobody had taken went with them. */
  readonly killedRunners: readonly number[];
  /** Processes, sockets, mounts that were still there at the end. */
  readonly leftBehind: readonly string[];
  /** What should have come within its time and did not. */
  readonly stuck: readonly string[];
}

const FACT_LIMIT = 16_384;
const PAYLOAD = ',"payload":';

export const bodyOf = (bytes: string): string => hash("sha1", bytes, "base64");

/** Reads an envelope as it came: a WebSocket frame, the data of an SSE message, or an item of a page. */
export function sightOf(text: string): Sight {
  const cut = text.indexOf(PAYLOAD);
  if (cut < 0) throw new Error(`not an envelope: ${text.slice(0, 200)}`);
  const head = text.slice(text.startsWith('{"type":"event",') ? 16 : 1, cut);
  const payload = text.slice(cut + PAYLOAD.length, -1);
  const fields: Record<string, unknown> = JSON.parse(`{${head}}`);
  const preview = fields["preview"] === true;
  const word = (name: string): string => String(fields[name] ?? "");
  const fact: unknown = preview || payload.length > FACT_LIMIT ? undefined : JSON.parse(payload);
  return {
    seq: Number(fields["seq"]),
    event_type: word("event_type"),
    origin: word("origin"),
    source: word("source"),
    preview,
    ...(typeof fields["turn_id"] === "string" && { turn_id: fields["turn_id"] }),
    ...(typeof fields["command_id"] === "string" && { command_id: fields["command_id"] }),
    head: bodyOf(preview ? head.replace(/"timestamp_ms":\d+/, "") : head),
    body: bodyOf(payload),
    ...(isJsonObject(fact) && { fact }),
  };
}

export const sameSight = (one: Sight, other: Sight): boolean => one.head === other.head && one.body === other.body;
