import fc from "fast-check";
import { expect, test } from "vitest";
import { createSubscription, lowestCursor, type Place, type Reader } from "../../src/client/subscription.ts";
import type { ClientFrame, Cursor, ServerFrame } from "../../src/protocol/frames.ts";
import { seq, sessionId } from "../../src/protocol/ids.ts";
import { verifies } from "../kit/verifies.ts";

const ID = sessionId("s1");
const event = (number: number, preview: boolean): ServerFrame => ({
  type: "event",
  session_id: ID,
  seq: seq(number),
  event_type: preview ? "stream_event" : "assistant",
  origin: "AGENT_EVENT",
  source: "agent",
  timestamp_ms: 0,
  ...(preview && { preview }),
  payload: {},
});

/** The wire as a server would serve it: a log, at most one subscription, and frames on their way. */
function createWorld() {
  const log: { seq: number; preview: boolean }[] = [];
  let head = 0;
  let connected = false;
  let serving: { next: number; previews: boolean } | undefined;
  let onTheWay: ServerFrame[] = [];
  const subscription = createSubscription(ID, { send: receive, bounce() {} });

  function receive(frame: ClientFrame): void {
    if (!connected) throw new Error("sent without a connection");
    if (frame.type === "unsubscribe") serving = undefined;
    if (frame.type !== "subscribe") return;
    onTheWay.push({ type: "subscribed", session_id: ID, head: seq(head), state: "running", open_requests: [] });
    serving = {
      next: frame.after === "head" || frame.after === undefined ? head : frame.after,
      previews: frame.previews ?? true,
    };
    fill();
  }
  function fill(): void {
    if (serving === undefined) return;
    for (const line of log) {
      if (line.seq <= serving.next || (line.preview && !serving.previews)) continue;
      onTheWay.push(event(line.seq, line.preview));
    }
    serving.next = head;
  }
  return {
    subscription,
    log,
    head: () => head,
    append(preview: boolean, skip: number) {
      head += 1 + skip;
      log.push({ seq: head, preview });
      fill();
    },
    /** What a turn's end does: previews are gone for those who come later. */
    forgetPreviews() {
      for (let index = log.length - 1; index >= 0; index--) if (log[index]?.preview === true) log.splice(index, 1);
    },
    deliver(count: number) {
      for (const frame of onTheWay.splice(0, count)) subscription.frame(frame, 1);
    },
    open() {
      if (connected) return;
      connected = true;
      subscription.opened();
    },
    cut() {
      if (!connected) return;
      connected = false;
      serving = undefined;
      onTheWay = [];
      subscription.lost();
    },
    isServing: () => serving !== undefined,
  };
}

interface Watched {
  readonly place: Place;
  readonly seen: { seq: number; preview: boolean }[];
  from: number | undefined;
  paused: boolean;
  isLive: boolean;
}

function join(world: ReturnType<typeof createWorld>, after: Cursor, previews: boolean, standing = false): Watched {
  const seen: { seq: number; preview: boolean }[] = [];
  const reader: Reader = {
    after,
    previews,
    standing,
    event({ seq: number, preview }) {
      expect(watched.paused).toBe(false);
      // One that joined what was live may be given a little more than it asked for, at its beginning.
      if (watched.isLive && watched.seen.length === 0) watched.from = Math.min(watched.from ?? number - 1, number - 1);
      seen.push({ seq: number, preview: preview === true });
    },
    subscribed(_, told) {
      if (watched.from !== undefined) return;
      watched.from = told?.head ?? world.head();
      watched.isLive = told === undefined;
    },
    gap() {},
    ended() {},
    failed(error) {
      throw error;
    },
  };
  const watched: Watched = {
    place: world.subscription.join(reader),
    seen,
    from: after === "head" ? undefined : after,
    paused: false,
    isLive: false,
  };
  return watched;
}

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant("append" as const), preview: fc.boolean(), skip: fc.nat(3) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("deliver" as const), count: fc.integer({ min: 1, max: 5 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("open" as const, "cut" as const, "forget" as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("join" as const),
      part: fc.nat(4),
      previews: fc.boolean(),
      standing: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom("pause" as const, "resume" as const, "leave" as const),
      which: fc.nat(),
    }),
  },
);

verifies(
  "CLIENT-RESUME",
  "each reader gets each durable event beyond its cursor once and in order, whatever happens to the line",
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 80, size: "max" }), async (steps) => {
        const world = createWorld();
        const readers: Watched[] = [];
        for (const next of steps) {
          const chosen = "which" in next ? readers[next.which % Math.max(readers.length, 1)] : undefined;
          if (next.do === "append") world.append(next.preview, next.skip);
          else if (next.do === "deliver") world.deliver(next.count);
          else if (next.do === "open") world.open();
          else if (next.do === "cut") world.cut();
          else if (next.do === "forget") world.forgetPreviews();
          else if (next.do === "join") {
            const after = next.part === 4 ? "head" : Math.floor((world.head() * next.part) / 4);
            readers.push(join(world, after, next.previews, next.standing));
          } else if (next.do === "pause" && chosen !== undefined) {
            chosen.paused = true;
            chosen.place.pause();
          } else if (next.do === "resume" && chosen !== undefined) {
            chosen.paused = false;
            chosen.place.resume();
          } else if (chosen !== undefined) {
            chosen.place.leave();
            readers.splice(readers.indexOf(chosen), 1);
          }
          await Promise.resolve();
        }
        for (const watched of readers) {
          watched.paused = false;
          watched.place.resume();
        }
        world.open();
        await Promise.resolve();
        for (let round = 0; round < 5; round++) {
          world.deliver(Number.POSITIVE_INFINITY);
          await Promise.resolve();
        }
        world.append(false, 0);
        world.deliver(Number.POSITIVE_INFINITY);
        for (const { seen, from } of readers) {
          expect(from).toBeDefined();
          const durable = seen.filter((line) => !line.preview).map((line) => line.seq);
          expect(durable).toEqual(
            world.log.filter((line) => !line.preview && line.seq > (from ?? 0)).map((line) => line.seq),
          );
          expect(seen.map((line) => line.seq)).toEqual(
            [...new Set(seen.map((line) => line.seq))].sort((a, b) => a - b),
          );
        }
        expect(world.isServing()).toBe(readers.length > 0);
      }),
      { numRuns: 400 },
    );
  },
);

const quiet = (after: Cursor): Reader => ({
  after,
  previews: false,
  standing: false,
  event() {},
  subscribed() {},
  gap() {},
  ended() {},
  failed() {},
});

function opened() {
  const frames: ClientFrame[] = [];
  const subscription = createSubscription(ID, { send: (frame) => frames.push(frame), bounce() {} });
  subscription.opened();
  const subscribed = (head: number) =>
    subscription.frame({ type: "subscribed", session_id: ID, head: seq(head), state: "idle", open_requests: [] }, 1);
  return { frames, subscription, subscribed };
}

test("readers that join in one tick share one subscribe frame, and a live one costs none", async () => {
  const { frames, subscription, subscribed } = opened();
  subscription.join(quiet(7));
  subscription.join(quiet("head"));
  await Promise.resolve();
  expect(frames).toEqual([{ type: "subscribe", session_id: ID, after: 7, previews: false }]);
  subscribed(7);
  subscription.join(quiet("head"));
  await Promise.resolve();
  expect(frames).toHaveLength(1);
});

test("a reader that wants only what is new is not put into a replay", async () => {
  const { frames, subscription, subscribed } = opened();
  subscription.join(quiet(0));
  await Promise.resolve();
  subscribed(1000);
  subscription.join(quiet("head"));
  await Promise.resolve();
  expect(frames).toHaveLength(2);
});

test("the lowest cursor serves all", () => {
  expect(lowestCursor(["head", "head"])).toBe("head");
  expect(lowestCursor(["head", 9, 3])).toBe(3);
  expect(lowestCursor([0])).toBe(0);
});
