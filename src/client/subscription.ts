import type { ClientFrame, Cursor, ServerFrame } from "../protocol/frames.ts";
import type { Capability, Registration } from "../protocol/registration.ts";
import { failureOf, PatchbayError } from "./errors.ts";
import type { SessionEvent } from "./events.ts";
import { asEvent, type Subscribed } from "./server-frame.ts";

/** One reader of a session's events inside this program. Each has a cursor of its own; all share one subscription on the wire. */
export interface Reader {
  /** Where to start. */
  readonly after: Cursor;
  readonly previews: boolean;
  /** Needs to know what is open at a known head. Others may join a subscription that is already live. */
  readonly standing: boolean;
  /** What this reader's program can answer, and serves, for the session. */
  readonly answers?: readonly Capability[];
  readonly register?: Registration;
  /** `length` is that of the frame's text. */
  event(event: SessionEvent, length: number): void;
  /** Events after `from` follow. Called again after each reconnection; no standing is told when the reader joined what was live. */
  subscribed(from: number, standing: Subscribed | undefined): void;
  gap(firstAvailable: number): void;
  /** The session has ended and everything of it was delivered. */
  ended(): void;
  failed(error: PatchbayError): void;
}

/** A reader's place in a subscription. */
export interface Place {
  leave(): void;
  /** Stops delivery and keeps the cursor: for a reader that has too much unread. */
  pause(): void;
  resume(): void;
}

/** One session's subscription over any number of connections and readers. */
export interface Subscription {
  join(reader: Reader): Place;
  /** A new connection is open. */
  opened(): void;
  lost(): void;
  frame(frame: ServerFrame, length: number): void;
  /** Nothing more will come. */
  closed(error: PatchbayError): void;
}

/** What a subscription does to the connection. */
export interface Wire {
  send(frame: ClientFrame): void;
  /** Come back with a fresh socket: what failed may work then. */
  bounce(reason: string): void;
}

interface Seat {
  readonly reader: Reader;
  cursor: Cursor;
  state: "waiting" | "served" | "paused";
}

/** The subscription as the server has it. At most one subscribe frame is unanswered, so an answer is never taken for another's. */
type Phase =
  | { readonly name: "offline" }
  | { readonly name: "none" }
  | {
      readonly name: "asking";
      readonly seats: Set<Seat>;
      readonly after: Cursor;
      readonly previews: boolean;
      again: boolean;
    }
  | { readonly name: "live"; position: number; readonly head: number; readonly previews: boolean };

/** The cursor that serves all of them: the lowest. */
export function lowestCursor(cursors: readonly Cursor[]): Cursor {
  const numbers = cursors.filter((cursor) => cursor !== "head");
  return numbers.length === 0 ? "head" : numbers.reduce((lowest, cursor) => Math.min(lowest, cursor));
}

const cursorAhead = (cursor: number, head: number): PatchbayError =>
  new PatchbayError({
    code: "cursor_ahead",
    message: `The cursor ${cursor} is above the session's head ${head}; it belongs to another session.`,
    retry: false,
  });

/** What all readers together offer to answer and to serve: one socket is one client to the server. */
function offers(seats: readonly Seat[]): { capabilities?: readonly Capability[]; register?: Registration } {
  const capabilities = [...new Set(seats.flatMap((seat) => seat.reader.answers ?? []))];
  const registered = seats.flatMap((seat) => seat.reader.register ?? []);
  const last = registered.at(-1);
  return { ...(capabilities.length > 0 && { capabilities }), ...(last !== undefined && { register: last }) };
}

/**
 * Gives every reader every event beyond its cursor, in order and once. A reader that joins, or a connection that is new, makes one
 * subscribe frame from the lowest cursor; what a reader has seen already it is not given again. A reader that has just joined gets
 * nothing before the `subscribed` that answers for it: what comes earlier may be ahead of its history.
 */
export function createSubscription(sessionId: string, wire: Wire): Subscription {
  const seats = new Set<Seat>();
  let phase: Phase = { name: "offline" };
  let scheduled = false;

  const wanted = (): Seat[] => [...seats].filter((seat) => seat.state !== "paused");
  const served = (): Seat[] => [...seats].filter((seat) => seat.state === "served");

  function ask(): void {
    scheduled = false;
    if (phase.name === "offline") return;
    if (phase.name === "asking") {
      phase.again = true;
      return;
    }
    const now = wanted();
    if (now.length === 0) return;
    const after = lowestCursor(now.map((seat) => seat.cursor));
    const previews = now.some((seat) => seat.reader.previews);
    phase = { name: "asking", seats: new Set(now), after, previews, again: false };
    wire.send({ type: "subscribe", session_id: sessionId, after, previews, ...offers(now) });
  }

  function schedule(): void {
    if (scheduled) return;
    // Readers that join in one tick share one frame.
    scheduled = true;
    queueMicrotask(ask);
  }

  /** Where the wire is, if events after the reader's cursor are just what comes next on it. */
  function livePosition(seat: Seat): number | undefined {
    if (phase.name !== "live" || phase.position < phase.head) return undefined;
    if (seat.reader.standing || (seat.reader.previews && !phase.previews)) return undefined;
    return seat.cursor === "head" || seat.cursor === phase.position ? phase.position : undefined;
  }

  function enter(seat: Seat): void {
    const position = livePosition(seat);
    if (position === undefined) return schedule();
    seat.cursor = position;
    seat.state = "served";
    queueMicrotask(() => seats.has(seat) && seat.reader.subscribed(position, undefined));
  }

  function stopIfUnread(): void {
    if (phase.name !== "live" || wanted().length > 0) return;
    phase = { name: "none" };
    wire.send({ type: "unsubscribe", session_id: sessionId });
  }

  function failAll(error: PatchbayError): void {
    const failed = [...seats];
    seats.clear();
    if (phase.name !== "offline") phase = { name: "none" };
    for (const seat of failed) seat.reader.failed(error);
  }

  function serve(seat: Seat, frame: Subscribed): void {
    if (seat.cursor === "head") seat.cursor = frame.head;
    if (seat.cursor > frame.head) {
      seats.delete(seat);
      seat.reader.failed(cursorAhead(seat.cursor, frame.head));
      return;
    }
    seat.state = "served";
    seat.reader.subscribed(seat.cursor, frame);
  }

  function subscribed(frame: Subscribed): void {
    if (phase.name !== "asking") return;
    const { seats: covered, after, previews, again } = phase;
    phase = { name: "live", position: after === "head" ? frame.head : after, head: frame.head, previews };
    for (const seat of covered) if (seats.has(seat)) serve(seat, frame);
    if (again) ask();
    stopIfUnread();
  }

  function event(frame: Extract<ServerFrame, { type: "event" }>, length: number): void {
    if (phase.name === "live" && frame.seq > phase.position) phase.position = frame.seq;
    const { type: _, ...envelope } = frame;
    const typed = asEvent(envelope);
    for (const seat of served()) {
      if (seat.cursor === "head" || frame.seq <= seat.cursor) continue;
      seat.cursor = frame.seq;
      if (frame.preview !== true || seat.reader.previews) seat.reader.event(typed, length);
    }
  }

  function ended(): void {
    const finished = served();
    for (const seat of finished) seats.delete(seat);
    if (phase.name === "live") phase = { name: "none" };
    for (const seat of finished) seat.reader.ended();
    if (wanted().length > 0) schedule();
  }

  function refused(frame: Extract<ServerFrame, { type: "error" }>): void {
    if (frame.retry) wire.bounce(frame.message);
    else failAll(failureOf(frame) ?? new PatchbayError(frame));
  }

  return {
    join(reader) {
      const seat: Seat = { reader, cursor: reader.after, state: "waiting" };
      seats.add(seat);
      enter(seat);
      return {
        leave() {
          if (!seats.delete(seat)) return;
          if (seat.reader.register !== undefined && wanted().length > 0) schedule();
          stopIfUnread();
        },
        pause() {
          seat.state = "paused";
          if (phase.name === "asking") phase.seats.delete(seat);
          stopIfUnread();
        },
        resume() {
          if (seat.state !== "paused" || !seats.has(seat)) return;
          seat.state = "waiting";
          enter(seat);
        },
      };
    },
    opened() {
      phase = { name: "none" };
      ask();
    },
    lost() {
      phase = { name: "offline" };
      for (const seat of seats) if (seat.state === "served") seat.state = "waiting";
    },
    frame(frame, length) {
      if (frame.type === "event") event(frame, length);
      else if (frame.type === "subscribed") subscribed(frame);
      else if (frame.type === "gap") for (const seat of served()) seat.reader.gap(frame.first_available);
      else if (frame.type === "ended") ended();
      else if (frame.type === "error") refused(frame);
    },
    closed: failAll,
  };
}
