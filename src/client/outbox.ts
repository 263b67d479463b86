import type { Accepted } from "../protocol/commands.ts";
import type { CommandFrame, ServerFrame } from "../protocol/frames.ts";
import { failureOf, PatchbayError } from "./errors.ts";

interface Pending {
  readonly frame: CommandFrame;
  readonly resolve: (accepted: Accepted) => void;
  readonly reject: (error: unknown) => void;
}

/** Commands that the server has not acknowledged yet, in the order in which they were given. */
export interface Outbox {
  /** Resolves when the command is durable. @throws PatchbayError as the server refuses it, or `closed` */
  add(frame: CommandFrame): Promise<Accepted>;
  /** A new connection is open: everything unacknowledged goes out again under its id, which makes it apply once. */
  opened(): void;
  /** True when the frame was the answer to one of these commands. */
  frame(frame: ServerFrame): boolean;
  /** The server cut the line because something was too large for it: the largest of these, which must not be sent again. */
  refuseLargest(): void;
  closed(error: PatchbayError): void;
}

const tooLarge = (): PatchbayError =>
  new PatchbayError({
    code: "too_large",
    message: "The command is over the server's limit; make it smaller.",
    retry: false,
  });

/** An id is unique per session only, so both make the key. */
const keyOf = (sessionId: string, id: string): string => `${sessionId} ${id}`;

export function createOutbox(send: (frame: CommandFrame) => void): Outbox {
  const pending = new Map<string, Pending>();

  function find(id: string, sessionId: string | undefined): [string, Pending] | undefined {
    if (sessionId !== undefined) {
      const entry = pending.get(keyOf(sessionId, id));
      return entry && [keyOf(sessionId, id), entry];
    }
    return [...pending].find(([, entry]) => entry.frame.id === id);
  }

  return {
    add(frame) {
      const key = keyOf(frame.session_id, frame.id);
      if (pending.has(key)) {
        const message = "A command with this id is on its way already; wait for it or choose another id.";
        return Promise.reject(new PatchbayError({ code: "id_reused", message, retry: false }));
      }
      return new Promise((resolve, reject) => {
        pending.set(key, { frame, resolve, reject });
        send(frame);
      });
    },
    opened() {
      for (const { frame } of pending.values()) send(frame);
    },
    frame(frame) {
      if ((frame.type !== "ack" && frame.type !== "error") || frame.id === undefined) return false;
      const found = find(frame.id, "session_id" in frame ? frame.session_id : undefined);
      if (found === undefined) return false;
      const [key, entry] = found;
      // A draining server closes the line; the next one is asked under the same id.
      if (frame.type === "error" && frame.code === "draining") return true;
      pending.delete(key);
      if (frame.type === "error") entry.reject(failureOf(frame) ?? new PatchbayError(frame));
      else entry.resolve({ seq: frame.seq, ...(frame.duplicate === true && { duplicate: true }) });
      return true;
    },
    refuseLargest() {
      const sized = [...pending].map(([key, entry]) => ({ key, entry, length: JSON.stringify(entry.frame).length }));
      const largest = sized.sort((a, b) => b.length - a.length)[0];
      if (largest === undefined) return;
      pending.delete(largest.key);
      largest.entry.reject(tooLarge());
    },
    closed(error) {
      const waiting = [...pending.values()];
      pending.clear();
      for (const { reject } of waiting) reject(error);
    },
  };
}
