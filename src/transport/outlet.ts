/** What an outlet writes to: a socket, or the response that owns one. */
export interface ByteWriter {
  write(chunk: Uint8Array, written: () => void): boolean;
  cork(): void;
  uncork(): void;
  readonly writableLength: number;
}

export interface OutletOptions {
  /** Nothing more is handed to the socket while this many bytes wait in it. */
  readonly inFlightBytes: number;
  /** A socket that takes none of the waiting bytes for this long is slow. In milliseconds. */
  readonly slowReaderMs: number;
  /** Called once, when the socket is slow. */
  readonly slow: () => void;
  /** Called when a socket that was full has taken something: its reader lives. */
  readonly progress?: () => void;
}

/** The one writer of a socket: bounded, fair between its users, and never in the middle of somebody else's frame. */
export interface Outlet {
  /**
   * Writes whole frames when it is this caller's turn and there is room: first come, first served, so callers that wait for each write
   * share the socket evenly. Resolves to false, with nothing written, when the signal aborted or the outlet stopped.
   */
  data(chunks: readonly Uint8Array[], signal?: AbortSignal): Promise<boolean>;
  /** Runs a small write (an answer, a ping) at the next frame boundary, without waiting for room. */
  control(write: () => void): void;
  /** Completes a frame that is under way and refuses further data; what is already in the socket still goes out. */
  stop(): void;
}

interface Job {
  readonly chunks: readonly Uint8Array[];
  readonly signal: AbortSignal | undefined;
  readonly settle: (written: boolean) => void;
}

/** One frame larger than this is written in pieces, so that a slow link shows progress and memory stays bounded. In bytes. */
const PIECE_BYTES = 64 * 1024;
/** After so many bytes in one turn of the event loop, others get theirs. */
const TURN_BYTES = 1024 * 1024;
const CHECKS_PER_PERIOD = 4;

function* piecesOf(chunks: readonly Uint8Array[]): Generator<Uint8Array> {
  for (const chunk of chunks) {
    for (let start = 0; start < chunk.length; start += PIECE_BYTES) yield chunk.subarray(start, start + PIECE_BYTES);
  }
}

/** Watches that waiting bytes move. Returns how to tell it of progress, and how to end it. */
function watchProgress(writer: ByteWriter, { slowReaderMs, slow, progress }: OutletOptions) {
  let full = false;
  let moved = false;
  let idleChecks = 0;
  const timer = setInterval(() => {
    const waiting = writer.writableLength > 0;
    idleChecks = waiting && full && !moved ? idleChecks + 1 : 0;
    full = waiting;
    moved = false;
    if (idleChecks < CHECKS_PER_PERIOD) return;
    clearInterval(timer);
    slow();
  }, slowReaderMs / CHECKS_PER_PERIOD).unref();
  return {
    written: () => {
      moved = true;
      if (full) progress?.();
    },
    end: () => clearInterval(timer),
  };
}

/** An outlet over a socket. Bound: inFlightBytes and one piece, or one slice that the caller made. */
export function createOutlet(writer: ByteWriter, options: OutletOptions): Outlet {
  const queue: Job[] = [];
  const deferred: (() => void)[] = [];
  let current: { readonly pieces: Generator<Uint8Array>; readonly settle: (written: boolean) => void } | undefined;
  let turnBytes = 0;
  let corked = false;
  let stopped = false;
  const watcher = watchProgress(writer, options);

  // One system call per tick for all subscriptions of the socket: nextTick runs after the microtasks that feed us.
  const cork = (): void => {
    if (corked) return;
    corked = true;
    writer.cork();
    process.nextTick(uncork);
  };
  const uncork = (): void => {
    if (!corked) return;
    corked = false;
    writer.uncork();
  };
  const written = (): void => {
    watcher.written();
    advance();
  };
  const put = (chunk: Uint8Array): void => {
    cork();
    if (turnBytes === 0) setImmediate(nextTurn);
    turnBytes += chunk.length;
    writer.write(chunk, written);
  };
  const nextTurn = (): void => {
    turnBytes = 0;
    advance();
  };
  const hasRoom = (): boolean => writer.writableLength < options.inFlightBytes && turnBytes < TURN_BYTES;

  const complete = (): void => {
    const done = current;
    current = undefined;
    for (const write of deferred.splice(0)) write();
    done?.settle(true);
  };
  const advance = (): void => {
    while (!stopped && hasRoom()) {
      if (current === undefined) {
        const job = queue.shift();
        if (job === undefined) return;
        if (job.signal?.aborted) job.settle(false);
        else current = { pieces: piecesOf(job.chunks), settle: job.settle };
        continue;
      }
      const piece = current.pieces.next();
      if (piece.done) complete();
      else put(piece.value);
    }
  };
  return {
    data(chunks, signal) {
      if (stopped || signal?.aborted) return Promise.resolve(false);
      const { promise, resolve } = Promise.withResolvers<boolean>();
      queue.push({ chunks, signal, settle: resolve });
      advance();
      return promise;
    },
    control(write) {
      cork();
      if (current === undefined) write();
      else deferred.push(write);
    },
    stop() {
      if (stopped) return;
      stopped = true;
      watcher.end();
      if (current !== undefined) {
        // The rest of the frame must go out, or whatever follows it would be read as part of it.
        for (const piece of current.pieces) writer.write(piece, () => {});
        complete();
      }
      for (const job of queue.splice(0)) job.settle(false);
      // A response that ends corked sends its last chunk marker before what is corked (Node 24): clients would lose the rest.
      uncork();
    },
  };
}
