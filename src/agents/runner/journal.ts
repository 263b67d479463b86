import { createLineCounter, type LinePosition } from "./line-counter.ts";
import type { Spool } from "./spool.ts";

/** A run's output from the first line that is not acknowledged on. Offsets count the bytes of all its output. */
export interface Journal {
  /** Takes what came. A promise means: no more until it settles. */
  append(bytes: Buffer): void | Promise<void>;
  /** End of output: a line without newline gets one. */
  finish(): void | Promise<void>;
  /** How many lines are complete. */
  lines(): number;
  /** The offset of the first byte that is still kept. Empty lines behind the last acknowledged one go with it, read or not. */
  start(): number;
  end(): number;
  /** How many lines are complete before this offset; perhaps some fewer, in the middle of what came together. */
  linesBefore(offset: number): number;
  /** The offset behind line `after`, or behind the last one that was acknowledged, whichever is later. */
  seek(after: number): Promise<{ readonly offset: number; readonly line: number }>;
  /** Up to `limit` bytes from there; at least one, when there is one. A promise when they are on disk. */
  read(offset: number, limit: number): Buffer | Promise<Buffer>;
  /** Lines up to this one are not needed any more. */
  acknowledge(line: number): void;
  /** Drops everything, and whatever still comes. */
  close(): Promise<void>;
}

/** Bytes that came together. They are in memory or at `fileAt`. */
interface Piece {
  readonly at: number;
  length: number;
  readonly linesBefore: number;
  linesAfter: number;
  /** In which line it begins. */
  readonly start: LinePosition;
  isOpenAtEnd: boolean;
  readonly bytes: Buffer | undefined;
  readonly fileAt: number;
}

/** What a piece costs besides its bytes: an agent may write one byte at a time. */
const PIECE_OVERHEAD_BYTES = 256;
/** Pieces on disk are joined up to this size. */
const JOINED_BYTES = 256 * 1024;

export function createJournal(spool: Spool, memoryLimitBytes: number): Journal {
  const counter = createLineCounter();
  let pieces: Piece[] = [];
  let lines = 0;
  let end = 0;
  let acknowledged = 0;
  let memoryBytes = 0;
  let spooled = 0;
  /** What is on its way to disk is no piece yet, and needed all the same. */
  let isSpooling = false;
  let isClosed = false;
  let room = Promise.withResolvers<void>();

  function add(bytes: Buffer, fileAt: number | undefined): void {
    const start = counter.position();
    const linesBefore = lines;
    lines += counter.count(bytes);
    const at = end;
    end += bytes.length;
    const isOpenAtEnd = counter.position().openBytes > 0;
    const last = pieces.at(-1);
    if (fileAt === undefined) memoryBytes += bytes.length + PIECE_OVERHEAD_BYTES;
    else if (last !== undefined && canJoin(last, fileAt, bytes.length)) {
      last.length += bytes.length;
      last.linesAfter = lines;
      last.isOpenAtEnd = isOpenAtEnd;
      return;
    } else spooled += 1;
    pieces.push({
      at,
      length: bytes.length,
      linesBefore,
      linesAfter: lines,
      start,
      isOpenAtEnd,
      bytes: fileAt === undefined ? bytes : undefined,
      fileAt: fileAt ?? 0,
    });
  }

  const hasMemory = (bytes: number): boolean =>
    pieces.length === 0 || memoryBytes + bytes + PIECE_OVERHEAD_BYTES <= memoryLimitBytes;

  /** Waits for acknowledgements as long as neither memory nor disk takes more. */
  async function appendSlowly(bytes: Buffer): Promise<void> {
    let isDiskGood = true;
    while (!isClosed) {
      if (hasMemory(bytes.length)) {
        add(bytes, undefined);
        return;
      }
      if (isDiskGood && spool.hasRoom(bytes.length)) {
        isSpooling = true;
        const fileAt = await spool.append(bytes).catch(() => undefined);
        isSpooling = false;
        if (isClosed) return;
        if (fileAt !== undefined) {
          add(bytes, fileAt);
          return;
        }
        isDiskGood = false;
        continue;
      }
      await room.promise;
      isDiskGood = true;
    }
  }

  function append(bytes: Buffer): void | Promise<void> {
    if (isClosed) return undefined;
    if (!hasMemory(bytes.length)) return appendSlowly(bytes);
    add(bytes, undefined);
    return undefined;
  }

  function release(count: number): void {
    for (const piece of pieces.splice(0, count)) {
      if (piece.bytes === undefined) spooled -= 1;
      else memoryBytes -= piece.length + PIECE_OVERHEAD_BYTES;
    }
    if (spooled === 0 && !isSpooling) spool.clear();
    room.resolve();
    room = Promise.withResolvers();
  }

  /** The piece that holds this offset. */
  function pieceAt(offset: number): Piece | undefined {
    const last = pieces.at(-1);
    // Almost always: what came just now is sent just now.
    if (last !== undefined && offset >= last.at) return offset < end ? last : undefined;
    let low = 0;
    let high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((pieces[middle]?.at ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return pieces[low];
  }

  const load = (piece: Piece, from: number, length: number): Buffer | Promise<Buffer> =>
    piece.bytes === undefined ? spool.read(piece.fileAt + from, length) : piece.bytes.subarray(from, from + length);

  async function seek(after: number): Promise<{ offset: number; line: number }> {
    const line = Math.min(Math.max(after, acknowledged), lines);
    const piece = pieces.find(({ linesAfter }) => linesAfter >= line);
    if (piece === undefined) return { offset: end, line };
    if (piece.linesBefore === line) return { offset: piece.at, line };
    const bytes = await load(piece, 0, piece.length);
    // What was acknowledged in between is not there any more.
    if (acknowledged > line) return seek(after);
    const found = createLineCounter(piece.start).find(bytes, line - piece.linesBefore);
    return { offset: piece.at + (found ?? piece.length), line };
  }

  return {
    append,
    seek,
    finish: () => (counter.isLineOpen() ? append(Buffer.from("\n")) : undefined),
    lines: () => lines,
    linesBefore: (offset) => (offset >= end ? lines : (pieceAt(offset)?.linesBefore ?? 0)),
    start: () => pieces[0]?.at ?? end,
    end: () => end,
    read(offset, limit) {
      const piece = pieceAt(offset);
      if (piece === undefined || offset < piece.at) throw new RangeError("nothing was kept at this offset");
      const from = offset - piece.at;
      return load(piece, from, Math.min(limit, piece.length - from));
    },
    acknowledge(line) {
      acknowledged = Math.max(acknowledged, line);
      const kept = pieces.findIndex(
        ({ linesAfter, isOpenAtEnd }) => (isOpenAtEnd ? linesAfter + 1 : linesAfter) > acknowledged,
      );
      const count = kept === -1 ? pieces.length : kept;
      if (count > 0) release(count);
    },
    async close() {
      isClosed = true;
      pieces = [];
      room.resolve();
      await spool.close();
    },
  };
}

function canJoin(piece: Piece, fileAt: number, length: number): boolean {
  return piece.bytes === undefined && piece.fileAt + piece.length === fileAt && piece.length + length <= JOINED_BYTES;
}
