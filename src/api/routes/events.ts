import { parseLastEventId, parsePageQuery, parseStreamQuery } from "../../protocol/http.schema.ts";
import type { Seq } from "../../protocol/ids.ts";
import { BrokerError } from "../../protocol/problems.ts";
import type { Session } from "../../sessions/port.ts";
import { pageBytes } from "../../transport/page.ts";
import { pump, type Sink } from "../../transport/pump.ts";
import { type EventStream, openStream, STREAM_DEFAULTS } from "../../transport/sse.ts";
import { type Call, type Route, sessionOf } from "../context.ts";
import { startOf } from "../cursor.ts";
import { asProblem } from "../errors.ts";

async function page(call: Call): Promise<unknown> {
  const { after, limit, event_type } = parsePageQuery(call.request.query);
  const { log } = await sessionOf(call);
  const found = await log.page({
    after: startOf(after, log.head()),
    limit,
    restricted: call.context.auth.may(call.principal, "drive"),
    ...(event_type !== undefined && { eventType: event_type }),
  });
  return call.reply.type("application/json").send(pageBytes(found));
}

function counted(sink: Sink, call: Call): Sink {
  return {
    ...sink,
    async events(events) {
      await sink.events(events);
      call.context.metrics.eventsSent("sse", events.length);
    },
  };
}

async function serve(call: Call, session: Session, stream: EventStream, after: Seq, previews: boolean): Promise<void> {
  const { context, principal, request } = call;
  const options = {
    after,
    previews,
    restricted: context.auth.may(principal, "drive"),
    ended: () => session.standing().finished,
  };
  try {
    const end = await pump(session.log, counted(stream.sink, call), options, stream.closing);
    stream.end(end === "aborted" ? undefined : "ended");
  } catch (error) {
    const problem = asProblem(error);
    request.log.error({ err: error, session_id: session.id }, "event stream failed");
    stream.end(problem instanceof BrokerError ? problem : new BrokerError("internal", "The stream failed. Come back."));
  }
}

/** What the gate has set: a hijacked reply does not send it by itself. */
export const headersOf = ({ reply }: Call): Record<string, string> =>
  Object.fromEntries(Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]));

async function stream(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const query = parseStreamQuery(request.query);
  const lastEventId = request.headers["last-event-id"] || undefined;
  const cursor = lastEventId === undefined ? query.after : parseLastEventId(lastEventId);
  const session = await sessionOf(call);
  const after = startOf(cursor, session.log.head());
  const { finished, head } = session.standing();
  // An EventSource reconnects until it is told 204 (HTML standard 9.2.3).
  if (finished && after === head) return reply.code(204).send();
  reply.hijack();
  const { slowReaderMs, commentMs, inFlightBytes } = context.config;
  const options = { ...STREAM_DEFAULTS, slowReaderMs, commentMs, inFlightBytes };
  const opened = openStream(reply.raw, headersOf(call), options);
  context.live.add({ kind: "sse", principal: () => principal, close: opened.end, closed: opened.closed });
  await serve(call, session, opened, after, query.previews);
  return reply;
}

export const EVENT_ROUTES: readonly Route[] = [
  { method: "GET", url: "/v1/sessions/:id/events", access: "read", handle: page },
  { method: "GET", url: "/v1/sessions/:id/events/stream", access: "read", takesTicket: true, handle: stream },
];
