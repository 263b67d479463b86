import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { isJsonObject, type JsonObject, stringField } from "../../src/protocol/json.ts";
import { type Everywhere, watchEverywhere } from "../kit/everywhere.ts";
import { SKIPPED_SENDS_FILE } from "../kit/fake-agent-spec.ts";
import { payloadField } from "../kit/payload-field.ts";
import { listRecordings, RECORDINGS, type Recorded, readRecording } from "../kit/recordings.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import type { EventFrame } from "../kit/ws-client.ts";

const AT_ONCE = 4;

const part = (value: unknown, name: string): JsonObject => {
  const found = isJsonObject(value) ? value[name] : undefined;
  return isJsonObject(found) ? found : {};
};
const subtypeOf = (message: JsonObject): string | undefined => stringField(part(message, "request"), "subtype");
const answeredId = (payload: unknown): string => stringField(part(payload, "response"), "request_id") ?? "";
/** Printed only because the server asks for it, and for the store alone. */
const isMirror = ({ dir, message }: Recorded): boolean => dir === "recv" && message.type === "transcript_mirror";
const isInitialize = (entry: Recorded | undefined): boolean =>
  entry?.dir === "send" && subtypeOf(entry.message) === "initialize";

/** Messages that the recorded host sent before initialize was answered. The broker never does: they reach the agent later than recorded. */
function sentTooEarly(entries: readonly Recorded[]): Recorded[] {
  const sends = entries
    .slice(
      0,
      Math.max(
        0,
        entries.findIndex(({ dir }) => dir === "recv"),
      ),
    )
    .filter(({ dir }) => dir === "send");
  return isInitialize(sends[0]) ? sends.slice(1) : [];
}

/** The recording's host played by a client: one command for each `send`. What the broker does not let through, the agent is told to skip. */
async function playHost(server: TestServer, id: string, file: string, seen: Everywhere): Promise<Recorded[]> {
  const { socket } = seen;
  const entries = readRecording(file);
  const skips = join(server.dataDir, "workspaces", "default", file, SKIPPED_SENDS_FILE);
  const startsWithInitialize = isInitialize(entries.find(({ dir }) => dir === "send"));
  // The broker always initializes; where the recording did not, the fake agent answers that by itself.
  const isOwnAnswer = (event: EventFrame): boolean =>
    !startsWithInitialize && event.event_type === "control_response" && answeredId(event.payload).startsWith("broker-");
  const command = (event_type: string, payload: unknown) =>
    socket.command({
      id: randomUUID(),
      session_id: id,
      event_type,
      payload,
      ...(event_type === "query" && { delivery: "at_once" }),
    });
  const skip = async ({ index }: Recorded): Promise<void> => {
    const { body } = await server.call("GET", `/v1/sessions/${id}`);
    appendFileSync(skips, `${index}\n`);
    if (body.agent.pid !== undefined) process.kill(body.agent.pid, "SIGUSR2");
  };
  const send = async (entry: Recorded, isFirst: boolean): Promise<void> => {
    const { message } = entry;
    if (isInitialize(entry)) {
      // Without what needs routing back to one client; the first one starts the agent, later ones are answered from what it said.
      const request = { subtype: "initialize" };
      await command("control_request", { type: "control_request", request_id: randomUUID(), request });
      if (!isFirst) await skip(entry);
      return;
    }
    const answer = await command(message.type === "user" ? "query" : String(message.type), message);
    const wasAnsweredByBroker = answer.type === "error" && answer.details?.["decided_by"] === "broker";
    if (answer.type === "error" && !wasAnsweredByBroker) await skip(entry);
  };

  appendFileSync(
    skips,
    sentTooEarly(entries)
      .map(({ index }) => `${index}\n`)
      .join(""),
  );
  let sent = 0;
  for (const entry of entries) {
    if (isMirror(entry)) continue;
    if (entry.dir === "recv") await socket.next("event", (event) => event.source === "agent" && !isOwnAnswer(event));
    else if (entry.dir === "send") {
      await send(entry, sent === 0);
      sent += 1;
    }
  }
  return entries;
}

/** What the agent wrote: the recorded lines, with the request id that the broker chose for its initialize. */
function linesOf(entries: readonly Recorded[], received: readonly string[]): string[] {
  const first = entries.find(({ dir }) => dir === "send");
  const recorded = entries.filter((entry) => entry.dir === "recv" && !isMirror(entry)).map(({ raw }) => raw);
  const own = received.find((line) => line.includes('"request_id":"broker-'));
  const ours = JSON.stringify(answeredId(JSON.parse(own ?? "{}")));
  if (!isInitialize(first)) return own === undefined ? recorded : [own, ...recorded];
  return recorded.map((line) => line.replaceAll(JSON.stringify(first?.message["request_id"]), ours));
}

async function replay(server: TestServer, file: string): Promise<void> {
  const { id } = await server.session({ cwd: file });
  using seen = await watchEverywhere(server, id);
  const entries = await playHost(server, id, file, seen).catch((cause: unknown) => {
    throw new Error(`${file}: the dialogue did not go on`, { cause });
  });
  await server.call("DELETE", `/v1/sessions/${id}`);
  const ended = await seen.socket.next(
    "event",
    (event) => event.event_type === "session.state" && payloadField(event, "state") === "ended",
  );
  // A recorded process that dies by itself is started anew for what waits; the recording is of one process.
  const exit = seen.socket.events(id).find((event) => event.event_type === "agent.exited");
  const { live, liveSse, ...replays } = await seen.payloads(ended.seq, exit?.seq);
  const lines = linesOf(entries, live);
  // Byte for byte: the texts that were cut out of the frames, never parsed.
  expect(live, `${file}, live`).toEqual(lines);
  expect(liveSse, `${file}, live SSE`).toEqual(lines);
  const durable = lines.filter((line) => JSON.parse(line).type !== "stream_event");
  for (const [way, payloads] of Object.entries(replays)) expect(payloads, `${file}, ${way}`).toEqual(durable);
}

verifies(
  "P4-BYTES",
  "every recorded dialogue comes out of WebSocket, SSE and pages byte for byte, live and replayed",
  async () => {
    await using server = await startServer({ behaviour: { transcripts: RECORDINGS } });
    const files = listRecordings();
    expect(files.length).toBeGreaterThan(80);
    const waiting = [...files];
    const ran: string[] = [];
    const work = async (): Promise<void> => {
      for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
        await replay(server, file);
        ran.push(file);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(ran.sort()).toEqual(files);
  },
  180_000,
);
