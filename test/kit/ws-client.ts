import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import { type ServerFrame, SUBPROTOCOL } from "../../src/protocol/frames.ts";

type Frame<T extends ServerFrame["type"]> = Extract<ServerFrame, { type: T }>;
export type EventFrame = Frame<"event">;

/** A frame as it came, and parsed. */
interface Received {
  readonly text: string;
  readonly frame: ServerFrame;
}

/** A socket that keeps everything from the first byte, so a test may ask late. */
export interface WsClient extends Disposable {
  readonly socket: WebSocket;
  /** All frames so far. */
  readonly received: readonly Received[];
  send(frame: unknown): void;
  sendText(text: string | Uint8Array, binary?: boolean): void;
  /** The first frame of that type that was not handed out yet and fits. Rejects when the socket closes, or after a while. */
  next<T extends ServerFrame["type"]>(type: T, fits?: (frame: Frame<T>) => boolean): Promise<Frame<T>>;
  /** Sends a command and gives its ack or error. */
  command(frame: {
    id: string;
    session_id: string;
    event_type: string;
    payload: unknown;
    delivery?: string;
  }): Promise<Frame<"ack"> | Frame<"error">>;
  /** The ack or error of a command that was sent as a frame. */
  answerTo(commandId: string): Promise<Frame<"ack"> | Frame<"error">>;
  /** Events of a session so far, in order. */
  events(sessionId?: string): EventFrame[];
  /** How it was closed. */
  readonly closed: Promise<{ code: number; reason: string }>;
}

export interface ConnectOptions {
  readonly query?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly protocols?: readonly string[];
  /** Answer the server's pings (default true). */
  readonly pong?: boolean;
}

/** What an upgrade was refused with. */
export class UpgradeRefused extends Error {
  readonly status: number;
  readonly body: string;

  constructor(status: number, body: string) {
    super(`the upgrade was refused with ${status}: ${body}`);
    this.status = status;
    this.body = body;
  }
}

const PATIENCE_MS = 10_000;

interface Waiter {
  readonly fits: (received: Received) => boolean;
  readonly resolve: (received: Received) => void;
  readonly reject: (error: Error) => void;
}

async function readAll(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

/** Hands out each frame at most once, to whoever waits for its kind. */
function createMailbox(describe: () => string) {
  const received: Received[] = [];
  const handedOut = new Set<Received>();
  const waiters = new Set<Waiter>();
  let over: Error | undefined;
  return {
    received,
    push(one: Received): void {
      received.push(one);
      const waiter = [...waiters].find(({ fits }) => fits(one));
      if (waiter === undefined) return;
      waiters.delete(waiter);
      handedOut.add(one);
      waiter.resolve(one);
    },
    close(error: Error): void {
      over = error;
      for (const waiter of waiters) waiter.reject(error);
      waiters.clear();
    },
    take(fits: (received: Received) => boolean, what: string): Promise<Received> {
      const known = received.find((one) => !handedOut.has(one) && fits(one));
      if (known !== undefined) {
        handedOut.add(known);
        return Promise.resolve(known);
      }
      if (over !== undefined) return Promise.reject(over);
      const { promise, resolve, reject } = Promise.withResolvers<Received>();
      const waiter = { fits, resolve, reject };
      waiters.add(waiter);
      const timer = setTimeout(() => {
        waiters.delete(waiter);
        reject(new Error(`no ${what} came; ${describe()}`));
      }, PATIENCE_MS);
      return promise.finally(() => clearTimeout(timer));
    },
  };
}

/** Connects to /v1/ws. @throws UpgradeRefused */
export async function connect(url: string, options: ConnectOptions = {}): Promise<WsClient> {
  const address = `${url.replace(/^http/, "ws")}/v1/ws${options.query ?? ""}`;
  const socket = new WebSocket(address, options.protocols ? [...options.protocols] : [SUBPROTOCOL], {
    headers: options.headers ?? {},
    autoPong: options.pong ?? true,
    perMessageDeflate: false,
  });
  const mailbox = createMailbox(
    () =>
      `last frames: ${mailbox.received
        .slice(-5)
        .map(({ text }) => text.slice(0, 300))
        .join("\n")}`,
  );
  socket.on("message", (data, isBinary) => {
    if (isBinary) throw new Error("the server sent a binary frame");
    const text = data.toString();
    mailbox.push({ text, frame: JSON.parse(text) });
  });
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.once("close", (code, reason) => {
      mailbox.close(new Error(`the socket was closed with ${code} ${reason.toString()}`));
      resolve({ code, reason: reason.toString() });
    });
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", reject);
    socket.once("unexpected-response", (_request, response) => {
      readAll(response).then((body) => reject(new UpgradeRefused(response.statusCode ?? 0, body)), reject);
    });
  });
  const next: WsClient["next"] = async (type, fits = () => true) => {
    type Wanted = Parameters<typeof fits>[0];
    const isWanted = (frame: ServerFrame): frame is Wanted => frame.type === type;
    const { frame } = await mailbox.take((one) => isWanted(one.frame) && fits(one.frame), type);
    if (!isWanted(frame)) throw new Error("not the frame that was asked for");
    return frame;
  };
  const sendText = (text: string | Uint8Array, binary = false): void => socket.send(text, { binary });
  const answerTo: WsClient["answerTo"] = async (commandId) => {
    const { frame: answer } = await mailbox.take(
      (one) => (one.frame.type === "ack" || one.frame.type === "error") && one.frame.id === commandId,
      `answer to ${commandId}`,
    );
    if (answer.type !== "ack" && answer.type !== "error") throw new Error("not an answer");
    return answer;
  };
  return {
    socket,
    received: mailbox.received,
    send: (frame) => sendText(JSON.stringify(frame)),
    sendText,
    next,
    answerTo,
    command(frame) {
      sendText(JSON.stringify({ type: "command", ...frame }));
      return answerTo(frame.id);
    },
    events: (sessionId) =>
      mailbox.received
        .map(({ frame }) => frame)
        .filter((frame) => frame.type === "event")
        .filter((frame) => sessionId === undefined || frame.session_id === sessionId),
    closed,
    [Symbol.dispose]: () => socket.terminate(),
  };
}
