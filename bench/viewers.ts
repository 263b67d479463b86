/** Viewers of one session, in a process of their own: raw sockets that count, and check that what came is whole and in order. */
import { connect, type Socket } from "node:net";
import { type JsonObject, stringField } from "../src/protocol/json.ts";
import { answerBench } from "./measured.ts";
import { createEventReader, createLineReader, type Seen, type WireReader } from "./wire.ts";

const READ_BUFFER_BYTES = 256 * 1024;
/** An empty pong, masked with zeros as a client must. */
const PONG = Buffer.from([0x8a, 0x80, 0, 0, 0, 0]);

interface Viewer {
  readonly socket: Socket;
  readonly reader: WireReader;
  /** Resolves when it may be sent events. */
  readonly ready: Promise<void>;
}

let viewers: readonly Viewer[] = [];
let finished: (() => void) | undefined;

function check(): void {
  const isOver = viewers.every(({ reader: { seen } }) => seen.isDone || seen.fault !== undefined);
  if (!isOver) return;
  finished?.();
  finished = undefined;
}

/** Takes the answer to an upgrade off the front of what arrives. Calls back once, with what follows it, or with why it was refused. */
function awaitUpgrade(done: (rest: Buffer, refusal?: Error) => void): (bytes: Buffer) => void {
  let answer = "";
  return (bytes) => {
    answer += bytes.toString("latin1");
    const end = answer.indexOf("\r\n\r\n");
    if (end === -1) return;
    const refusal = answer.startsWith("HTTP/1.1 101 ") ? undefined : new Error(answer.slice(0, 500));
    done(Buffer.from(answer.slice(end + 4), "latin1"), refusal);
  };
}

/** Connects one viewer. With `upgrade`, the head of an HTTP request, it becomes a WebSocket first; without, the server's first byte says that it is in. */
function openViewer(port: number, upgrade: string | undefined): Viewer {
  const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
  const reader = upgrade === undefined ? createLineReader() : createEventReader(() => socket.write(PONG));
  const { seen } = reader;
  const read = (bytes: Buffer): void => {
    const wasDone = seen.isDone;
    reader.read(bytes);
    if (seen.isDone !== wasDone || seen.fault !== undefined) check();
  };
  const joined = (rest: Buffer, refusal?: Error): void => {
    if (refusal !== undefined) return reject(refusal);
    take = read;
    resolve();
    read(rest);
  };
  let take = upgrade === undefined ? joined : awaitUpgrade(joined);
  const callback = (count: number, bytes: Uint8Array): boolean => {
    take(Buffer.from(bytes.buffer, bytes.byteOffset, count));
    return true;
  };
  const onread = { buffer: Buffer.alloc(READ_BUFFER_BYTES), callback };
  const socket: Socket = connect({ port, host: "127.0.0.1", noDelay: true, onread }, () => {
    if (upgrade !== undefined) socket.write(upgrade);
  });
  socket.on("error", reject);
  socket.on("close", () => {
    seen.fault ??= "the socket was closed";
    check();
  });
  return { socket, reader, ready };
}

const sum = (all: readonly Seen[], field: "previews" | "durable" | "bytes"): number =>
  all.reduce((total, seen) => total + seen[field], 0);

function report(): JsonObject {
  const all = viewers.map(({ reader }) => reader.seen);
  const faults = all.flatMap(({ fault }) => fault ?? []);
  return {
    previews: sum(all, "previews"),
    durableLeast: Math.min(...all.map(({ durable }) => durable)),
    durableMost: Math.max(...all.map(({ durable }) => durable)),
    bytes: sum(all, "bytes"),
    endedAtMs: performance.timeOrigin + performance.now(),
    ...(faults[0] !== undefined && { fault: `${faults.length} viewers: ${faults[0]}` }),
  };
}

answerBench({
  async open({ port, viewers: count, ...where }) {
    viewers = Array.from({ length: Number(count) }, () => openViewer(Number(port), stringField(where, "upgrade")));
    await Promise.all(viewers.map(({ ready }) => ready));
  },
  reset() {
    for (const { reader } of viewers) reader.reset();
  },
  async finished() {
    const { promise, resolve } = Promise.withResolvers<void>();
    finished = resolve;
    check();
    await promise;
    return report();
  },
  drop() {
    for (const { socket } of viewers) socket.destroy();
    viewers = [];
  },
  close: () => setImmediate(process.exit),
});
process.send?.({ ready: true });
