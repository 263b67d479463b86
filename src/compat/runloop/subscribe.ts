import { seq } from "../../protocol/ids.ts";
import { BrokerError, PROBLEMS } from "../../protocol/problems.ts";
import { parseSubscription } from "../../protocol/runloop.schema.ts";
import { createSlicer, pump, type Sink } from "../../transport/pump.ts";
import { openStream, STREAM_DEFAULTS, type StreamWords } from "../../transport/sse.ts";
import { axonFrame } from "./axon-view.ts";
import { axonOf, type RunloopCall } from "./call.ts";

/** In-band, this code makes the client come back by itself, after its last sequence (spec 1.3). */
const COME_BACK = 408;

/** A client that was told to come back does so at once: somebody must still be there to tell it when. In milliseconds. */
const LINGER_MS = 300;

async function lingerIf(isDraining: boolean): Promise<void> {
  if (isDraining) await new Promise<void>((resolve) => setTimeout(resolve, LINGER_MS));
}

function problemFrame({ code, message }: BrokerError): Uint8Array {
  const { retry, status } = PROBLEMS[code];
  return Buffer.from(`event: error\ndata: ${JSON.stringify({ code: retry ? COME_BACK : status, message })}\n\n`);
}

/** No `event:` but for a failure: the client takes the name `error` for one, and throws at anything without data. */
const WORDS: StreamWords = {
  greeting: () => ": here are the events\n\n",
  slices: createSlicer(axonFrame),
  gap: (firstAvailable) => Buffer.from(`: retention removed what was before ${firstAvailable}\n\n`),
  ended: Buffer.from(": this axon was deleted\n\n"),
  problem: problemFrame,
};

/** GET /v1/axons/{id}/subscribe/sse: the same pump as our own stream, in other words. */
export async function subscribe(call: RunloopCall): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const { host, auth } = context;
  const { after_sequence } = parseSubscription(request.query);
  const session = await axonOf(call);
  const { head } = session.standing();
  if (after_sequence > head) {
    throw new BrokerError("cursor_ahead", `after_sequence: ${after_sequence} is above the axon's head ${head}.`);
  }
  reply.hijack();
  const headers = Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]);
  const { slowReaderMs, commentMs, inFlightBytes } = host.config;
  const options = { ...STREAM_DEFAULTS, slowReaderMs, commentMs, inFlightBytes };
  const stream = openStream(reply.raw, Object.fromEntries(headers), options, WORDS);
  const closed = stream.closed.then(() => lingerIf(host.live.draining.aborted));
  host.live.add({ kind: "sse", principal: () => principal, close: stream.end, closed });
  const sink: Sink = {
    ...stream.sink,
    async events(events) {
      await stream.sink.events(events);
      host.eventsSent(events.length);
    },
  };
  const wanted = {
    after: seq(after_sequence),
    previews: true,
    restricted: auth.may(principal, "drive"),
    ended: () => session.standing().finished,
  };
  try {
    const end = await pump(session.log, sink, wanted, stream.closing);
    stream.end(end === "aborted" ? undefined : "ended");
  } catch (error) {
    request.log.error({ err: error, session_id: session.id }, "axon stream failed");
    stream.end(error instanceof BrokerError ? error : new BrokerError("internal", "The stream failed. Come back."));
  }
  return reply;
}
