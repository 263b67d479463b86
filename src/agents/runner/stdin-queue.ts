import { FRAME_BODY_LIMIT_BYTES } from "./frames.ts";
import type { Link } from "./link.ts";

/** What the runner has of a run's stdin. */
export interface StdinThere {
  /** The highest id of a line that it has taken. */
  readonly taken: number;
  /** How many bytes of those are not in the pipe yet. */
  readonly unwrittenBytes: number;
}

/** A run's stdin on the server's side: lines are kept until the runner says that they are in the pipe. */
export interface StdinQueue {
  /** The highest id of a line that was handed in. */
  last(): number;
  confirmed(): number;
  /** Lines with higher ids have never left this side. */
  sent(): number;
  /** A line whose id is not above the last one is dropped. */
  write(id: number, line: Buffer): void;
  /** Lines up to this id are in the pipe. */
  confirm(upTo: number): void;
  /** What the runner has not taken goes over this link. */
  linked(to: Link, there: StdinThere): void;
  unlinked(): void;
}

/**
 * How much may be at the runner for an agent that does not read; what is beyond waits here, where it is part of a session's stored state.
 * A single line may be larger.
 */
export const STDIN_WINDOW_BYTES = 8 * 1024 * 1024;
/** The six bytes of a line's id come before a piece of it. */
const WRITE_PIECE_BYTES = FRAME_BODY_LIMIT_BYTES - 6;

export function createStdinQueue(channel: number, takenAtFirst: number): StdinQueue {
  const waiting = new Map<number, Buffer>();
  let link: Link | undefined;
  let last = takenAtFirst;
  let confirmed = 0;
  /** The runner has, or will have, everything up to this id. */
  let sent = takenAtFirst;
  let everSent = takenAtFirst;
  /** Bytes of lines up to `sent` that are not confirmed. Those that came before this link count until `earlier` is. */
  let sentBytes = 0;
  let earlier: StdinThere = { taken: 0, unwrittenBytes: 0 };

  function sendLine(to: Link, id: number, line: Buffer): void {
    for (let from = 0; from < line.length; from += WRITE_PIECE_BYTES) {
      const end = from + WRITE_PIECE_BYTES;
      to.send({ kind: "write", channel, count: id, more: end < line.length, body: line.subarray(from, end) });
    }
  }

  function sendDue(): void {
    if (link === undefined) return;
    for (const [id, line] of waiting) {
      if (id <= sent) continue;
      if (sentBytes > 0 && sentBytes + line.length > STDIN_WINDOW_BYTES) return;
      sent = id;
      everSent = Math.max(everSent, id);
      sentBytes += line.length;
      sendLine(link, id, line);
    }
  }

  return {
    last: () => last,
    confirmed: () => confirmed,
    sent: () => everSent,
    write(id, line) {
      if (id <= last) return;
      last = id;
      waiting.set(id, line);
      sendDue();
    },
    confirm(upTo) {
      confirmed = Math.max(confirmed, upTo);
      for (const [id, line] of waiting) {
        if (id > upTo) break;
        waiting.delete(id);
        if (id > earlier.taken && id <= sent) sentBytes -= line.length;
      }
      if (upTo >= earlier.taken) {
        sentBytes -= earlier.unwrittenBytes;
        earlier = { taken: earlier.taken, unwrittenBytes: 0 };
      }
      sendDue();
    },
    linked(to, there) {
      if (link === to) return;
      link = to;
      earlier = there;
      sent = there.taken;
      sentBytes = there.unwrittenBytes;
      sendDue();
    },
    unlinked() {
      link = undefined;
    },
  };
}
