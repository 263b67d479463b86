import { isUtf8 } from "node:buffer";
import { isJsonObject } from "../protocol/json.ts";
import { createHeldBytes } from "./held-bytes.ts";
import type { AgentHandlers, AgentOutput, RawHandlers } from "./port.ts";

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;

/** Turns the bytes of an agent's stdout into lines. */
export interface LineCutter {
  /** The lines that this chunk completes, in order. Their bytes may share the chunk's memory. */
  push(chunk: Buffer): AgentOutput[];
  /** At end of file: the last line, if it had no newline. */
  end(): AgentOutput[];
}

/**
 * Cuts at `\n` only. One trailing `\r` is taken off; empty lines are skipped. A line of more than `limitBytes` becomes
 * `dropped` with its size, and nothing of it is kept while it passes by.
 */
export function createLineCutter(limitBytes: number): LineCutter {
  const held = createHeldBytes();
  let lineBytes = 0;
  let lastByte = 0;

  function take(piece: Buffer): void {
    if (piece.length === 0) return;
    lineBytes += piece.length;
    lastByte = piece[piece.length - 1] ?? 0;
    // One byte more than the limit may be a carriage return.
    if (lineBytes > limitBytes + 1) held.clear();
    else held.add(piece);
  }

  function finish(lines: AgentOutput[]): void {
    const bytes = lineBytes > 0 && lastByte === CARRIAGE_RETURN ? lineBytes - 1 : lineBytes;
    if (bytes > limitBytes) lines.push({ kind: "dropped", bytes });
    else if (bytes > 0) lines.push(classify(held.take().subarray(0, bytes)));
    held.clear();
    lineBytes = 0;
  }

  return {
    push(chunk) {
      const lines: AgentOutput[] = [];
      let start = 0;
      for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
        take(chunk.subarray(start, end));
        finish(lines);
        start = end + 1;
      }
      take(chunk.subarray(start));
      return lines;
    },
    end() {
      const lines: AgentOutput[] = [];
      finish(lines);
      return lines;
    },
  };
}

/** Handlers of lines, for who delivers chunks. */
export function cutLines(limitBytes: number, handlers: AgentHandlers): RawHandlers {
  const cutter = createLineCutter(limitBytes);
  const deliver = (lines: readonly AgentOutput[]): void | Promise<void> =>
    lines.length === 0 ? undefined : handlers.output(lines);
  return {
    chunk: (bytes) => deliver(cutter.push(bytes)),
    ended: () => deliver(cutter.end()),
    exited: (exit) => handlers.exited(exit),
  };
}

function classify(bytes: Buffer): AgentOutput {
  // An invalid byte in a text frame would end every socket that it is sent on, and a raw CR (white space to JSON) would end an SSE field.
  if (!isUtf8(bytes) || bytes.includes(CARRIAGE_RETURN)) return { kind: "noise", bytes };
  try {
    const message: unknown = JSON.parse(bytes.toString("utf8"));
    return isJsonObject(message) ? { kind: "line", bytes, message } : { kind: "noise", bytes };
  } catch {
    return { kind: "noise", bytes };
  }
}
