import fc from "fast-check";
import { expect, test } from "vitest";
import { createView, type SessionEvent, type ViewItem } from "../../src/client/index.ts";
import { asEvent } from "../../src/client/server-frame.ts";
import type { Origin } from "../../src/protocol/events.ts";
import { seq, sessionId } from "../../src/protocol/ids.ts";

let count = 0;
function event(origin: Origin, event_type: string, payload: unknown, more: object = {}): SessionEvent {
  count += 1;
  const head = { session_id: sessionId("s"), seq: seq(count), event_type, origin, source: "x", timestamp_ms: 0 };
  return asEvent({ ...head, ...more, payload });
}
const agent = (type: string, payload: object, more?: object) => event("AGENT_EVENT", type, { type, ...payload }, more);
const stream = (inner: object, parent: string | null = null) =>
  agent("stream_event", { event: inner, parent_tool_use_id: parent }, { preview: true });
const start = (parent?: string) =>
  stream({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }, parent);
const delta = (text: string, parent?: string) =>
  stream({ type: "content_block_delta", delta: { type: "text_delta", text } }, parent);
const said = (text: string, parent: string | null = null) =>
  agent("assistant", { message: { id: "m", content: [{ type: "text", text }] }, parent_tool_use_id: parent });

const show = (events: readonly SessionEvent[]): ViewItem[] => {
  const view = createView();
  return events.flatMap((one) => view.push(one));
};
const textOf = (items: readonly ViewItem[]): string =>
  items.map((item) => (item.kind === "text" ? item.text : item.kind === "text_end" ? "\n" : "")).join("");

test("text is shown once, however much of it was streamed before the whole line came", () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { maxLength: 8 }), fc.nat(8), (pieces, kept) => {
      const streamed = pieces.slice(0, kept).map((piece) => delta(piece));
      expect(textOf(show([start(), ...streamed, said(pieces.join(""))]))).toBe(`${pieces.join("")}\n`);
      const partial = event("SYSTEM_EVENT", "turn.partial", { turn_id: "t", text: pieces.join("") });
      expect(textOf(show([start(), ...streamed, partial]))).toBe(`${pieces.join("")}\n`);
    }),
  );
});

test("who joined in the middle of a block sees it whole, after a break", () => {
  expect(textOf(show([delta("lo"), said("hello")]))).toBe("lo\nhello\n");
});

test("a subagent's text does not mix with the agent's", () => {
  const items = show([start(), delta("a"), start("toolu_1"), delta("b", "toolu_1"), said("b!", "toolu_1"), said("a!")]);
  expect(textOf(items)).toBe("ab!\n!\n");
});

test("a message is shown as sent, its echo is not; tools, results and ends are items", () => {
  const items = show([
    event("USER_EVENT", "query", { type: "user", message: { role: "user", content: [{ type: "text", text: "hi" }] } }),
    agent("user", { message: { role: "user", content: "hi" }, isReplay: true }, { echo_of: 1 }),
    agent("assistant", {
      message: { id: "m", content: [{ type: "tool_use", id: "t1", name: "Bash", input: { command: "ls" } }] },
    }),
    agent("user", {
      message: {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: "t1", content: [{ type: "text", text: "out" }], is_error: true }],
      },
    }),
    agent("result", { subtype: "success", is_error: true, result: "Overloaded" }, { turn_id: "t" }),
    agent("brand_new", { anything: 1 }),
    event("SYSTEM_EVENT", "brand.new", {}),
    event("SYSTEM_EVENT", "turn.completed", { turn_id: "t", stop_reason: "end_turn" }),
    event("SYSTEM_EVENT", "turn.failed", { turn_id: "u", reason: "agent_exited", message: "gone" }),
  ]);
  expect(items).toEqual([
    { kind: "user", text: "hi" },
    { kind: "tool", id: "t1", name: "Bash", input: { command: "ls" } },
    { kind: "tool_result", id: "t1", isError: true, text: "out" },
    { kind: "turn", turnId: "t", outcome: "completed", reason: "end_turn", text: "Overloaded" },
    { kind: "turn", turnId: "u", outcome: "failed", reason: "agent_exited", text: "gone" },
  ]);
});

test("what was published where no agent was may be anything, and is shown where it is text", () => {
  const message = { type: "user", message: { role: "user", content: [{ type: "text", text: "whole" }] } };
  const payloads: unknown[] = [
    "words",
    { text: "short" },
    message,
    { message: "odd" },
    [1],
    {},
    { message: { content: 7 } },
  ];
  const items = show(
    payloads.map((payload, index) => event(index === 2 ? "EXTERNAL_EVENT" : "USER_EVENT", "query", payload)),
  );
  expect(items.map((item) => item.kind === "user" && item.text)).toEqual(["words", "short", "whole", "", "", "", ""]);
});
