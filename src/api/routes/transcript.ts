import { parseTranscriptQuery } from "../../protocol/http.schema.ts";
import { seq } from "../../protocol/ids.ts";
import type { EventLog } from "../../sessions/port.ts";
import { type Download, openDownload } from "../../transport/download.ts";
import { type Call, type Route, sessionOf } from "../context.ts";
import { type Crossing, createPipeOrder, payloadOf } from "../transcript/order.ts";
import { redact } from "../transcript/redact.ts";
import { headersOf } from "./events.ts";

interface Choice {
  readonly previews: boolean;
  /** Lines with private facts too; what they say of accounts is redacted for everybody. */
  readonly restricted: boolean;
}

/** Small lines are sent together. In bytes. */
const CHUNK_BYTES = 64 * 1024;

/** One line, in pieces; none when retention has taken what it said. */
async function lineOf(log: EventLog, crossing: Crossing): Promise<readonly Uint8Array[]> {
  const event = "at" in crossing ? await log.read(seq(crossing.at)) : undefined;
  const payload = "at" in crossing ? event && payloadOf(event) : crossing.payload;
  if (payload === undefined) return [];
  const { dir, atMs, redacts } = crossing;
  const message = redacts ? redact(payload) : payload;
  return [Buffer.from(`{"dir":"${dir}","msg":`), message, Buffer.from(`,"at_ms":${atMs}}\n`)];
}

/** What crossed the pipes up to the log's head of now. Ends by itself: what is shown is there, so nothing is waited for. */
async function* crossings(log: EventLog, { previews, restricted }: Choice, signal: AbortSignal) {
  const order = createPipeOrder();
  const head = log.head();
  const shown = (crossing: Crossing): boolean => restricted || !crossing.restricted;
  if (head === 0) return;
  for await (const batch of log.follow(seq(0), signal)) {
    if (batch.kind === "gap") order.gap();
    if (batch.kind === "gap" && batch.firstAvailable > head) break;
    for (const event of batch.kind === "gap" ? [] : batch.events) {
      if (event.seq <= head && (previews || !event.preview)) yield* order.take(event).filter(shown);
    }
    if (batch.kind === "events" && (batch.events.at(-1)?.seq ?? 0) >= head) break;
  }
  yield* order.finish();
}

/** Reads no further ahead than its reader takes. */
async function send(log: EventLog, choice: Choice, download: Download): Promise<void> {
  let waiting: Uint8Array[] = [];
  let bytes = 0;
  const flush = async (): Promise<void> => {
    const chunks = bytes <= 2 * CHUNK_BYTES ? [Buffer.concat(waiting, bytes)] : waiting;
    waiting = [];
    bytes = 0;
    await download.write(chunks);
  };
  for await (const crossing of crossings(log, choice, download.closing)) {
    const line = await lineOf(log, crossing);
    waiting.push(...line);
    bytes += line.reduce((sum, part) => sum + part.length, 0);
    if (bytes >= CHUNK_BYTES) await flush();
  }
  if (bytes > 0) await flush();
}

async function transcript(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const { previews } = parseTranscriptQuery(request.query);
  const session = await sessionOf(call);
  const { slowReaderMs, inFlightBytes } = context.config;
  reply.hijack();
  const contentType = "application/x-ndjson; charset=utf-8";
  const download = openDownload(reply.raw, headersOf(call), { contentType, slowReaderMs, inFlightBytes });
  context.live.add({ kind: "download", principal: () => principal, close: download.cut, closed: download.closed });
  try {
    await send(session.log, { previews, restricted: context.auth.may(principal, "drive") }, download);
    download.end();
  } catch (error) {
    request.log.error({ err: error, session_id: session.id }, "transcript failed");
    download.cut();
  }
  return reply;
}

export const TRANSCRIPT_ROUTES: readonly Route[] = [
  { method: "GET", url: "/v1/sessions/:id/transcript", access: "read", handle: transcript },
];
