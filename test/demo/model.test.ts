import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import { type ScriptedModel, startScriptedModel } from "../../src/demo/model.ts";
import { ask, calls, eventsOf, replyText, result, user } from "./ask.ts";

const start = (script: Parameters<typeof startScriptedModel>[0]["script"]): Promise<ScriptedModel> =>
  startScriptedModel({ script });

test("streams text in small pieces, framed as the Messages API does", async () => {
  await using model = await startScriptedModel({ script: [{ text: "hi", reply: "Hello 🦊 you" }], chunkChars: 7 });
  const response = await ask(model.url, "hi");
  expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const events = await eventsOf(response);
  expect(events.map((event) => event.type)).toEqual([
    "message_start",
    "ping",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  expect(events[0]?.data).toMatchObject({ message: { role: "assistant", model: "claude-test", content: [] } });
  // The fox is a surrogate pair at the seventh unit: it stays whole.
  expect(events[3]?.data).toMatchObject({ index: 0, delta: { type: "text_delta", text: "Hello 🦊" } });
  expect(events[4]?.data).toMatchObject({ delta: { text: " you" } });
  expect(events[6]?.data).toMatchObject({ delta: { stop_reason: "end_turn" } });
});

test("answers without a stream as one body", async () => {
  await using model = await start([
    { reply: [{ thinking: "hm" }, "a", "b", { tool: "Bash", input: { command: "ls" }, id: "t1" }] },
  ]);
  const body = await (await ask(model.url, "x", { stream: false })).json();
  expect(body).toMatchObject({
    type: "message",
    stop_reason: "tool_use",
    content: [
      { type: "thinking", thinking: "hm" },
      { type: "text", text: "ab" },
      { type: "tool_use", id: "t1", name: "Bash", input: { command: "ls" } },
    ],
  });
});

test("streams thinking with a signature, and tool input as JSON pieces", async () => {
  const content = "y".repeat(10_000);
  await using model = await start([
    { reply: [{ thinking: "hm" }, "ok", { tool: "Write", input: { content } }, { tool: "Read", input: {} }] },
  ]);
  const events = await eventsOf(await ask(model.url, "x"));
  const blocks = events.filter((event) => event.type === "content_block_start");
  expect(blocks.map((event) => fieldOf(fieldOf(event.data, "content_block"), "type"))).toEqual([
    "thinking",
    "text",
    "tool_use",
    "tool_use",
  ]);
  expect(events.map((event) => fieldOf(fieldOf(event.data, "delta"), "type"))).toContain("signature_delta");
  const pieces = events.filter((event) => fieldOf(event.data, "index") === 2 && event.type === "content_block_delta");
  const json = pieces.map((event) => fieldOf(fieldOf(event.data, "delta"), "partial_json")).join("");
  expect(pieces.length).toBeGreaterThan(2);
  expect(JSON.parse(json)).toEqual({ content });
  expect(events.at(-2)?.data).toMatchObject({ delta: { stop_reason: "tool_use" } });
});

test.each([
  [400, "invalid_request_error"],
  [401, "authentication_error"],
  [429, "rate_limit_error"],
  [500, "api_error"],
  [529, "overloaded_error"],
])("answers with status %i", async (status, type) => {
  await using model = await start([{ reply: { status, message: "no", retryAfterSeconds: 7 } }]);
  const response = await ask(model.url, "x");
  expect(response.status).toBe(status);
  expect(response.headers.get("retry-after")).toBe("7");
  expect(await response.json()).toEqual({ type: "error", error: { type, message: "no" } });
});

test("a rule with `times` answers so often in one user turn, then the next rule does", async () => {
  await using model = await start([
    { text: "flaky", times: 2, reply: { status: 529 } },
    { text: "flaky", reply: "recovered" },
  ]);
  const statuses = [];
  for (let index = 0; index < 3; index += 1) statuses.push((await ask(model.url, "flaky")).status);
  expect(statuses).toEqual([529, 529, 200]);
  const otherSession = await ask(model.url, "flaky", {}, { "x-claude-code-session-id": "s2" });
  expect(otherSession.status).toBe(529);
});

test("cuts a stream after a text", async () => {
  await using model = await start([{ reply: ["only this", { cut: true }] }]);
  const response = await ask(model.url, "x");
  const decoder = new TextDecoder();
  let seen = "";
  const read = async (): Promise<void> => {
    for await (const chunk of response.body ?? []) seen += decoder.decode(chunk, { stream: true });
  };
  await expect(read()).rejects.toThrow();
  expect(seen).toContain('"text":"only this"');
  expect(seen).not.toContain("message_stop");
});

test("reports an error in mid-stream as an event", async () => {
  await using model = await start([{ reply: ["a", { streamError: "overloaded_error" }] }]);
  const events = await eventsOf(await ask(model.url, "x"));
  expect(events.at(-1)).toMatchObject({ type: "error", data: { error: { type: "overloaded_error" } } });
});

test("a stalled reply ends when the client goes, and says so", async () => {
  await using model = await start([{ reply: ["a", { stall: true }] }]);
  const response = await ask(model.url, "x");
  await response.body?.cancel();
  expect(await model.requests[0]?.settled).toBe("aborted");
});

test("a held reply goes on when the gate is released; a pause and a stop reason are obeyed", async () => {
  await using model = await start([{ reply: [{ hold: "gate" }, { pauseMs: 1 }, "go", { stopReason: "max_tokens" }] }]);
  const asked = ask(model.url, "x");
  const request = await model.waitForRequest((candidate) => candidate.conversation.text === "x");
  expect(request.outcome).toBe("pending");
  model.release("gate");
  const events = await eventsOf(await asked);
  expect(events.at(-2)?.data).toMatchObject({ delta: { stop_reason: "max_tokens" } });
  expect(await request.settled).toBe("complete");
});

test("fills a huge text to the byte", async () => {
  await using model = await start([{ reply: { fillBytes: 3_000_001 } }]);
  expect(Buffer.byteLength(await replyText(await ask(model.url, "x")))).toBe(3_000_001);
});

test("takes a 25 MB body and keeps the exact text", async () => {
  const text = `ü${"a\u2028\n".repeat(5_000_000)}`;
  await using model = await start([{ reply: "ok" }]);
  expect(await replyText(await ask(model.url, text))).toBe("ok");
  const [request] = model.turns();
  expect(request?.bodyBytes).toBeGreaterThan(25_000_000);
  expect(sha256(request?.conversation.text ?? "")).toBe(sha256(text));
});

test("inserts groups of the text, of a result, and the working directory", async () => {
  await using model = await start([
    {
      text: { regex: "write (\\S+) as (\\w+)" },
      reply: { tool: "Write", id: "t1", input: { file_path: "{{cwd}}/$1", deep: ["$2", 3, "$4 stays"] } },
    },
    { text: "write", tool: "Write", result: /line (\d+)/, reply: "It broke at {{result.1}}, {{unknown}} stays." },
  ]);
  const system = [{ type: "text", text: "# Environment\n - Primary working directory: /srv/files\n - Shell: bash" }];
  const first = await (await ask(model.url, "write a.txt as text", { stream: false, system })).json();
  expect(first).toMatchObject({
    content: [{ input: { file_path: "/srv/files/a.txt", deep: ["text", 3, "$4 stays"] } }],
  });
  const messages = [user("write it"), calls("t1", "Write"), user(result("t1", "error in line 42", true))];
  expect(await replyText(await ask(model.url, messages))).toBe("It broke at 42, {{unknown}} stays.");
});

test("a function of a script sees the conversation", async () => {
  await using model = await start([{ reply: ({ text }) => `${text.length} characters, and $1` }]);
  expect(await replyText(await ask(model.url, "four"))).toBe("4 characters, and $1");
});

test("a script function that throws becomes a 500, and the model lives on", async () => {
  const rule = {
    text: "bad",
    reply: () => {
      throw new Error("script bug");
    },
  };
  await using model = await start([rule, { reply: "fine" }]);
  expect((await ask(model.url, "bad")).status).toBe(500);
  expect(await replyText(await ask(model.url, "good"))).toBe("fine");
});

test("counts tokens, answers HEAD, and refuses the rest in the API's words", async () => {
  await using model = await start([]);
  const messages = [user("abcd".repeat(100))];
  const counted = await fetch(`${model.url}/v1/messages/count_tokens`, post({ messages }));
  expect(fieldOf(await counted.json(), "input_tokens")).toBeGreaterThan(100);
  expect((await fetch(model.url, { method: "HEAD" })).status).toBe(200);
  const missing = await fetch(`${model.url}/v1/models`);
  expect(missing.status).toBe(404);
  expect(await missing.json()).toMatchObject({ type: "error", error: { type: "not_found_error" } });
  const bad = await fetch(`${model.url}/v1/messages`, { method: "POST", body: "{nonsense" });
  expect(bad.status).toBe(400);
  expect(model.requests.map(({ number, kind }) => [number, kind])).toEqual([
    [1, "count_tokens"],
    [2, "probe"],
    [3, "unknown"],
    [4, "unknown"],
  ]);
});

test("listeners and waits see each request once, in order, and memory is bounded", async () => {
  await using model = await startScriptedModel({ script: [], maxRequests: 2 });
  const seen: string[] = [];
  const stop = model.onRequest((request) => seen.push(request.conversation.text));
  for (const text of ["a", "b", "c"]) await (await ask(model.url, text)).text();
  stop();
  await (await ask(model.url, "d")).text();
  expect(seen).toEqual(["a", "b", "c"]);
  expect(model.requests.map((request) => request.number)).toEqual([3, 4]);
  expect((await model.waitForRequest((request) => request.number > 0, { after: 3 })).conversation.text).toBe("d");
  await expect(model.waitForRequest(() => false, { timeoutMs: 1 })).rejects.toThrow("seen: 3 turn, 4 turn");
});

test("a client that leaves in the middle of its upload does no harm", async () => {
  await using model = await start([{ reply: "fine" }]);
  const socket = connect(Number(new URL(model.url).port), "127.0.0.1");
  await once(socket, "connect");
  socket.write("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{");
  socket.destroy();
  expect(await replyText(await ask(model.url, "x"))).toBe("fine");
});

test("a taken port is an error", async () => {
  await using model = await start([]);
  const port = Number(new URL(model.url).port);
  await expect(startScriptedModel({ script: [], port })).rejects.toThrow("EADDRINUSE");
});

function post(body: unknown): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
