import { setTimeout as delay } from "node:timers/promises";
import { WebSocket } from "ws";
import { type FaultProxy, startFaultProxy } from "../kit/fault-proxy.ts";
import { ADMIN_KEY } from "../kit/server.ts";
import type { Sight } from "./history.ts";
import { isJsonObject, type JsonObject, word } from "./json.ts";
import type { Command, ReaderNotes, Watched } from "./watched.ts";

/** Where the server is now: each life has a port of its own. */
export interface Place {
  readonly port: number;
  /** Resolves when a server is there. */
  up(): Promise<unknown>;
}

/** A client of one session, with any number of connections one after the other. */
export interface Client {
  /** Sends a command now, if it can, and after each reconnect until it is settled. */
  send?(command: Command): void;
  /** Cuts its link. */
  cut(): void;
  /** No more faults of its own making. */
  calm(): void;
  /** Closes it, and resolves when it is closed. */
  stop(): Promise<void>;
}

interface SocketOptions {
  readonly name: string;
  readonly random: () => number;
  /** Its link is cut at random bytes. */
  readonly isCut: boolean;
  /** It stops reading for a while, now and then. */
  readonly pauses: boolean;
  /** Answers what the agent asks. */
  readonly answers: boolean;
}

const LONGEST_BYTES = 400_000;

/** A WebSocket client: a cursor, commands that are sent until they are settled, answers to requests. */
export async function startSocketClient(place: Place, session: Watched, options: SocketOptions): Promise<Client> {
  const { random } = options;
  const notes = session.addReader(options.name);
  const outbox = new Map<string, Command>();
  const proxy: FaultProxy = await startFaultProxy(() => place.port);
  let socket: WebSocket | undefined;
  let isCalm = false;
  let isStopped = false;

  const write = (value: unknown): void => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(value));
  };
  const transmit = ({ frame }: Command): void => write({ type: "command", session_id: session.id, ...frame });
  const send = (command: Command): void => {
    outbox.set(command.frame.id, command);
    transmit(command);
  };
  const taker = createTaker(notes, {
    settled(id, told) {
      session.settle(id, told);
      outbox.delete(id);
    },
    again(id) {
      const command = outbox.get(id);
      if (command !== undefined) setTimeout(() => transmit(command), 50).unref();
    },
    offered: (request) => {
      if (options.answers) send(answerTo(session, options.name, request));
    },
  });

  async function connection(): Promise<void> {
    if (options.isCut && !isCalm && random() < 0.7) proxy.cutNextAfter(1 + Math.floor(random() ** 3 * LONGEST_BYTES));
    // One that stops reading is connected directly: a proxy would read on for it.
    const port = options.isCut ? proxy.port : place.port;
    const one = new WebSocket(
      `ws://127.0.0.1:${port}/v1/ws?session=${session.id}&after=${notes.last}`,
      ["patchbay.v1"],
      {
        headers: { authorization: `Bearer ${ADMIN_KEY}` },
        perMessageDeflate: false,
      },
    );
    socket = one;
    notes.begin();
    taker.begin();
    one.on("open", () => {
      for (const command of outbox.values()) transmit(command);
    });
    one.on("message", (data) => {
      taker.take(data.toString());
      if (!options.pauses || isCalm || random() > 0.001 || one.isPaused) return;
      one.pause();
      setTimeout(() => one.resume(), 50 + random() * 400).unref();
    });
    one.on("error", () => {});
    await new Promise<void>((resolve) => one.once("close", () => resolve()));
  }

  const running = (async () => {
    while (!isStopped) {
      await place.up();
      await connection();
      if (!isStopped) await delay(2 + random() * 20);
    }
  })();
  return {
    send,
    cut: () => socket?.terminate(),
    calm: () => {
      isCalm = true;
    },
    async stop() {
      isStopped = true;
      socket?.terminate();
      await running;
      await proxy[Symbol.asyncDispose]();
    },
  };
}

interface Wishes {
  settled(id: string, told: { readonly seq: number } | { readonly refusal: string }): void;
  /** The server asks to try this command again. */
  again(id: string): void;
  offered(request: JsonObject): void;
}

/** Reads the frames of one connection after the other. */
function createTaker(notes: ReaderNotes, wishes: Wishes) {
  let head = Number.POSITIVE_INFINITY;

  function takeOther(frame: JsonObject): void {
    const id = word(frame, "id");
    if (frame["type"] === "ack") return wishes.settled(id, { seq: Number(frame["seq"]) });
    if (frame["type"] === "gap") return notes.complain(JSON.stringify(frame));
    if (frame["type"] === "error") {
      if (frame["retry"] === true) return wishes.again(id);
      if (id !== "") return wishes.settled(id, { refusal: word(frame, "code") });
      return notes.complain(JSON.stringify(frame));
    }
    if (frame["type"] !== "subscribed") return;
    head = Number(frame["head"]);
    if (head < notes.last) notes.complain(`the head is ${head}, and ${notes.last} was seen`);
    const open: readonly unknown[] = Array.isArray(frame["open_requests"]) ? frame["open_requests"] : [];
    for (const request of open) if (isJsonObject(request)) wishes.offered(request);
  }

  return {
    begin: () => {
      head = Number.POSITIVE_INFINITY;
    },
    take(text: string): void {
      if (!text.startsWith('{"type":"event"')) {
        const frame: unknown = JSON.parse(text);
        return isJsonObject(frame) ? takeOther(frame) : undefined;
      }
      const sight: Sight = notes.take(text);
      // A replayed one is among the open requests of the subscription, if it is still open.
      if (sight.event_type === "request.opened" && sight.seq > head && sight.fact) wishes.offered(sight.fact);
    },
  };
}

function answerTo(session: Watched, name: string, opened: JsonObject): Command {
  const requestId = word(opened, "request_id");
  const id = `${name}:${requestId}`;
  const known = session.commands.get(id);
  if (known !== undefined) return known;
  const asked = isJsonObject(opened["request"]) ? opened["request"]["input"] : {};
  const input = isJsonObject(asked) ? asked : {};
  const updatedInput = opened["kind"] === "question" ? { ...input, answers: { "Which colour?": "Red" } } : input;
  const response = { subtype: "success", request_id: requestId, response: { behavior: "allow", updatedInput } };
  const payload = { type: "control_response", response };
  return session.addCommand({ id, event_type: "control_response", payload }, requestId);
}
