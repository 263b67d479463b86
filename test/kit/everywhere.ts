import { agentPayloads, pageEvents, type RawEvent, rawEvent } from "./raw-events.ts";
import type { TestServer } from "./server.ts";
import { openSse, type SseClient } from "./sse-client.ts";
import type { WsClient } from "./ws-client.ts";

/** A session as one socket and one event stream see it live, from before its first event on. */
export interface Everywhere extends Disposable {
  readonly socket: WsClient;
  readonly stream: SseClient;
  /** The raw events of the live socket so far. */
  live(): RawEvent[];
  /**
   * The lines of the agent as each way to read gave them: live ones with previews; replays (a new socket, a new stream, pages)
   * without. Call it when `seq` was seen live; each way is read until there. Lines above `upTo` are left out.
   */
  payloads(
    seq: number,
    upTo?: number,
  ): Promise<Record<"live" | "liveSse" | "replay" | "replaySse" | "pages", string[]>>;
}

const socketEvents = (socket: WsClient): RawEvent[] =>
  socket.received.filter(({ frame }) => frame.type === "event").map(({ text }) => rawEvent(text));

const streamEvents = (stream: SseClient): RawEvent[] =>
  stream.events.filter(({ event }) => event === "message").map(({ data }) => rawEvent(data));

const durable = (events: readonly RawEvent[]): string[] => agentPayloads(events.filter(({ preview }) => !preview));

export async function watchEverywhere(server: TestServer, id: string): Promise<Everywhere> {
  const headers = { authorization: `Bearer ${server.adminKey}` };
  const openStream = (): Promise<SseClient> =>
    openSse(`${server.url}/v1/sessions/${id}/events/stream?after=0`, { headers });
  const subscribe = async (): Promise<WsClient> => {
    const socket = await server.socket({ query: `?session=${id}&after=0` });
    await socket.next("subscribed");
    return socket;
  };
  const untilSeq = (stream: SseClient, seq: number) =>
    stream.until((events) => events.some((event) => Number(event.id) >= seq));
  const pages = async (seq: number): Promise<RawEvent[]> => {
    const found: RawEvent[] = [];
    for (let after = 0; after < seq; ) {
      const { text, body } = await server.call("GET", `/v1/sessions/${id}/events?after=${after}`);
      found.push(...pageEvents(text));
      if (body.next <= after) break;
      after = body.next;
    }
    return found;
  };
  const [socket, stream] = await Promise.all([subscribe(), openStream()]);
  return {
    socket,
    stream,
    live: () => socketEvents(socket),
    async payloads(seq, upTo = seq) {
      const within = (events: readonly RawEvent[]): RawEvent[] => events.filter((event) => event.seq <= upTo);
      using late = await subscribe();
      using lateStream = await openStream();
      await Promise.all([
        untilSeq(stream, seq),
        untilSeq(lateStream, seq),
        late.next("event", (event) => event.seq >= seq),
      ]);
      return {
        live: agentPayloads(within(socketEvents(socket))),
        liveSse: agentPayloads(within(streamEvents(stream))),
        replay: durable(within(socketEvents(late))),
        replaySse: durable(within(streamEvents(lateStream))),
        pages: durable(within(await pages(seq))),
      };
    },
    [Symbol.dispose]() {
      socket[Symbol.dispose]();
      stream[Symbol.dispose]();
    },
  };
}
