import fc from "fast-check";
import { expect, test } from "vitest";
import { eventFrame, frameHeader, textFrame } from "../../src/transport/frame.ts";
import { verifies } from "../kit/verifies.ts";
import { looseEvent } from "./link-server.ts";

/** RFC 6455 5.2, read by hand. */
function decode(frame: Buffer): { first: number; masked: boolean; payload: Buffer } {
  const short = (frame[1] ?? 0) & 0x7f;
  const [length, start] =
    short < 126 ? [short, 2] : short === 126 ? [frame.readUInt16BE(2), 4] : [Number(frame.readBigUInt64BE(2)), 10];
  const payload = frame.subarray(start);
  expect(payload.length).toBe(length);
  return { first: frame[0] ?? 0, masked: ((frame[1] ?? 0) & 0x80) !== 0, payload };
}

const EDGES = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000];

verifies(
  "WS-FRAMES",
  "a text frame has the shortest header that its length allows, and its payload byte for byte",
  () => {
    for (const size of EDGES) {
      const text = "x".repeat(size);
      const { first, masked, payload } = decode(textFrame(text));
      expect({ first, masked, text: payload.toString() }).toEqual({ first: 0x81, masked: false, text });
      expect(frameHeader(size).length).toBe(size < 126 ? 2 : size < 65_536 ? 4 : 10);
    }
  },
);

verifies("WS-FRAMES", "an event's frame is its envelope with the type spliced in, whatever its length", () => {
  const rest = '{"session_id":"s","seq":1,"payload":""}';
  for (const size of EDGES.filter((edge) => edge > 80)) {
    // The frame's payload has exactly `size` bytes.
    const envelope = `${rest.slice(0, -2)}${"y".repeat(size - rest.length - '"type":"event",'.length)}"}`;
    const event = looseEvent(envelope);
    const frame = Buffer.concat([...eventFrame(event)]);
    const { payload } = decode(frame);
    expect(payload.length).toBe(size);
    expect(payload.toString()).toBe(`{"type":"event",${envelope.slice(1)}`);
    expect(Buffer.concat([...eventFrame(event)]).equals(frame)).toBe(true);
  }
});

test("a frame is built once and shared, and a large envelope is not copied", () => {
  const small = looseEvent('{"a":1}');
  expect(eventFrame(small)[0]).toBe(eventFrame(small)[0]);
  const large = looseEvent(`{"a":"${"z".repeat(1024 * 1024)}"}`);
  const [, body] = eventFrame(large);
  expect(body?.buffer).toBe(large.envelope.buffer);
  expect(large.encoded.frame).toBeUndefined();
});

test("headers of any length read back", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 40 }), (size) => {
      const header = frameHeader(size);
      const short = (header[1] ?? 0) & 0x7f;
      const read = short < 126 ? short : short === 126 ? header.readUInt16BE(2) : Number(header.readBigUInt64BE(2));
      expect(read).toBe(size);
    }),
  );
});
