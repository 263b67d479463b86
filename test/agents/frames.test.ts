import fc from "fast-check";
import { expect, test } from "vitest";
import {
  createFrameDecoder,
  encodeFrame,
  FRAME_BODY_LIMIT_BYTES,
  type Frame,
  FrameFault,
} from "../../src/agents/runner/frames.ts";

const KINDS = [
  "hello",
  "welcome",
  "refused",
  "call",
  "answer",
  "output",
  "taken",
  "ack",
  "write",
  "written",
  "exit",
  "ping",
] as const;

const frame: fc.Arbitrary<Frame> = fc.record({
  kind: fc.constantFrom(...KINDS),
  channel: fc.integer({ min: 0, max: 0xffff_ffff }),
  more: fc.boolean(),
  body: fc.oneof(
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
    fc.integer({ min: 0, max: 20_000 }).map((length) => Buffer.alloc(length, "x")),
  ),
});

/** Cuts the bytes at these places. */
function pieces(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((one, other) => one - other), bytes.length];
  return places.slice(1).map((to, index) => bytes.subarray(places[index] ?? 0, to));
}

test("frames come out as they went in, at any chunking", () => {
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 8 }), fc.array(fc.nat(), { maxLength: 30 }), (frames, cuts) => {
      const seen: Frame[] = [];
      const decoder = createFrameDecoder((each) => seen.push(each));
      for (const piece of pieces(Buffer.concat(frames.map(encodeFrame)), cuts)) decoder.push(piece);
      expect(seen).toEqual(frames);
    }),
    { numRuns: 300 },
  );
});

test("one byte at a time", () => {
  const frames: Frame[] = KINDS.map((kind, channel) => ({
    kind,
    channel,
    more: false,
    body: Buffer.from(kind.repeat(channel)),
  }));
  const seen: Frame[] = [];
  const decoder = createFrameDecoder((each) => seen.push(each));
  for (const byte of Buffer.concat(frames.map(encodeFrame))) decoder.push(Buffer.from([byte]));
  expect(seen).toEqual(frames);
});

test("whatever else comes is a fault with its reason, or waits for more; never another error", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.nat(), { maxLength: 10 }), (bytes, cuts) => {
      const decoder = createFrameDecoder(() => {});
      try {
        for (const piece of pieces(Buffer.from(bytes), cuts)) decoder.push(piece);
      } catch (error) {
        expect(error).toBeInstanceOf(FrameFault);
      }
    }),
    { numRuns: 1000 },
  );
});

test("lengths, kinds and flags that no frame has are named", () => {
  const header = (length: number, kind: number, flags: number): Buffer => {
    const bytes = Buffer.alloc(10);
    bytes.writeUInt32BE(length);
    bytes[4] = kind;
    bytes[5] = flags;
    return bytes;
  };
  const cases = [
    [header(5, 1, 0), "frame_too_short"],
    [header(0, 1, 0), "frame_too_short"],
    [header(FRAME_BODY_LIMIT_BYTES + 7, 1, 0), "frame_too_large"],
    [header(0xffff_ffff, 1, 0), "frame_too_large"],
    [header(6, 0, 0), "frame_kind_unknown"],
    [header(6, 13, 0), "frame_kind_unknown"],
    [header(6, 1, 2), "frame_flags_unknown"],
  ] as const;
  for (const [bytes, reason] of cases) {
    expect(() => createFrameDecoder(() => {}).push(bytes)).toThrow(expect.objectContaining({ reason }));
  }
  expect(() =>
    encodeFrame({ kind: "output", channel: 1, more: false, body: Buffer.alloc(FRAME_BODY_LIMIT_BYTES + 1) }),
  ).toThrow(RangeError);
});
