import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { AgentSpec } from "../../src/agents/port.ts";
import { readProcess } from "../../src/agents/process-table.ts";
import { createAgentStdin } from "../../src/agents/stdin.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { fakeAgentSpec } from "../kit/fake-agent-spec.ts";
import { verifies } from "../kit/verifies.ts";
import { messageOf, textOf, watchAgent } from "./watched-agent.ts";

const BYTES = 1024 * 1024;

/** A child that prints each stdin line back as it came. */
function catSpec(): AgentSpec {
  return fakeAgentSpec({}, { command: "/bin/cat", args: [] });
}

function shellSpec(script: string): AgentSpec {
  return fakeAgentSpec({}, { command: "/bin/sh", args: ["-c", script] });
}

verifies("P5-NO-RAW-STDIN", "whatever a message holds, it reaches stdin as exactly one line of JSON", async () => {
  await using watched = watchAgent(catSpec());
  let expected = 0;
  await fc.assert(
    fc.asyncProperty(fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue()), async (fields) => {
      const message = { ...fields, type: "any", text: "a\nb\r\n\u2028\u0000\uFEFF\ud800" };
      await watched.agent.write(message);
      expected += 1;
      const index = expected - 1;
      await watched.until(() => watched.outputs.length === expected);
      const output = watched.outputs[index];
      expect(output && textOf(output)).toBe(JSON.stringify(message));
    }),
    { numRuns: 100 },
  );
  expect(watched.outputs).toHaveLength(expected);
});

verifies("P5-NO-RAW-STDIN", "a line that would kill the CLI is refused, and nothing of it is written", async () => {
  await using watched = watchAgent(catSpec());
  const fatal: JsonObject[] = [
    { type: "user" },
    { type: "user", message: null },
    { type: "user", message: { role: "assistant", content: "x" } },
    { type: "control_request", request_id: "1" },
    { type: "control_response" },
    { type: "control_response", response: "x" },
  ];
  for (const message of fatal) {
    await expect(watched.agent.write(message)).rejects.toMatchObject({ code: "bad_request" });
  }
  await watched.agent.write({ type: "keep_alive" });
  await watched.until(() => true);
  expect(watched.outputs.map(textOf)).toEqual(['{"type":"keep_alive"}']);
});

verifies(
  "P4-BYTES",
  "lines of megabytes come out whole, and multi-byte characters survive one byte per write",
  async () => {
    await using watched = watchAgent(fakeAgentSpec());
    await watched.turn(`!line ${12 * BYTES}`);
    expect(
      watched.outputs.find((output) => output.kind === "line" && output.bytes.length === 12 * BYTES),
    ).toBeDefined();
    expect(await watched.turn("!bytewise 💡é漢")).toBe("💡é漢");
    expect(watched.outputs.filter((output) => textOf(output).includes("💡é漢")).length).toBeGreaterThan(1);
    expect(watched.outputs.every((output) => !textOf(output).includes("\uFFFD"))).toBe(true);
  },
);

verifies("P4-BYTES", "a trailing CR is cut, and only that", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  await watched.turn("!cr");
  const [output] = watched.outputs.filter((line) => textOf(line).includes("carriage return"));
  expect(output?.kind).toBe("line");
  expect(output && textOf(output)).toBe('{"type":"assistant","text":"carriage return follows"}');
});

verifies("AGENT-NOISE", "invalid UTF-8, plain text and a raw CR are noise, and the turn goes on", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  for (const text of ["!invalid-utf8", "!noise", "!inner-cr"]) expect(await watched.turn(text)).toBe("raw");
  expect(watched.outputs.filter((output) => output.kind === "noise")).toHaveLength(3);
});

verifies("AGENT-LINE-LIMIT", "an over-long line is told by its size, and the next line arrives", async () => {
  await using watched = watchAgent(fakeAgentSpec({}, { lineLimitBytes: BYTES }));
  expect(await watched.turn(`!line ${BYTES}`)).toBe("long");
  expect(await watched.turn(`!line ${BYTES + 1}`)).toBe("long");
  expect(watched.outputs.filter((output) => output.kind === "dropped")).toEqual([
    { kind: "dropped", bytes: BYTES + 1 },
  ]);
  expect(watched.outputs.some((output) => output.kind === "line" && output.bytes.length === BYTES)).toBe(true);
});

verifies("AGENT-ENV", "the process has the environment of its spec and nothing else", async () => {
  process.env["BROKER_DB_PASSWORD"] = "s3cret";
  try {
    await using watched = watchAgent(fakeAgentSpec({}, { env: { PATH: "/bin", ONLY: "this" }, cwd: "/" }));
    const dump = JSON.parse(await watched.turn("!dump"));
    expect(dump.env).toEqual({ PATH: "/bin", ONLY: "this" });
    expect(dump.cwd).toBe("/");
  } finally {
    delete process.env["BROKER_DB_PASSWORD"];
  }
});

test("stdout is not read on while the handler is busy, and nothing is lost", async () => {
  const gate = Promise.withResolvers<void>();
  let calls = 0;
  await using watched = watchAgent(fakeAgentSpec(), {
    output() {
      calls += 1;
      return gate.promise;
    },
  });
  await watched.agent.write({ type: "user", message: { role: "user", content: "!flood 20" } });
  await watched.until(() => true);
  // The agent can write no more than the pipe holds: it blocks long before its turn ends.
  const pid = watched.agent.pid ?? 0;
  for (let sleeps = 0; sleeps < 5; ) {
    await new Promise((resolve) => setImmediate(resolve));
    if (readProcess(pid)?.state === "S") sleeps += 1;
  }
  expect(calls).toBe(1);
  gate.resolve();
  await watched.until((output) => messageOf(output)["type"] === "result");
  expect(watched.outputs.filter((output) => messageOf(output)["type"] === "stream_event")).toHaveLength(20 * 16);
});

test("a handler that fails costs its agent, and nothing else", async () => {
  const warned = new Promise<Error>((resolve) => process.once("warning", resolve));
  await using watched = watchAgent(fakeAgentSpec(), {
    async output() {
      throw new Error("the log is full");
    },
  });
  void watched.agent.write({ type: "user", message: { role: "user", content: "hello" } });
  expect(await watched.exited()).toMatchObject({ how: "SIGKILL", signal: "SIGKILL" });
  expect((await warned).message).toBe("the log is full");
});

test("a large message waits for an agent that reads slowly, and arrives whole", async () => {
  await using watched = watchAgent(shellSpec("exec wc -c"));
  const text = "z".repeat(20 * BYTES);
  await watched.agent.write({ type: "x", text });
  const exit = await watched.agent.stop({ eofMs: 10_000, termMs: 0 });
  expect(exit).toMatchObject({ code: 0, how: "eof" });
  expect(watched.outputs.map(textOf).join("").trim()).toBe(String(text.length + '{"type":"x","text":""}\n'.length));
});

test("what waits for an agent that reads nothing is bounded", async () => {
  const child = spawn("sleep", ["300"], { stdio: ["pipe", "ignore", "ignore"] });
  const overflowed = Promise.withResolvers<void>();
  const trouble = { broken() {}, overflowed: () => overflowed.resolve() };
  const stdin = createAgentStdin(child.stdin, trouble, 10 * BYTES);
  const taken = Array.from({ length: 12 }, () => stdin.write(Buffer.alloc(BYTES, "z")));
  await overflowed.promise;
  expect(child.stdin.writableLength).toBeLessThanOrEqual(10 * BYTES);
  child.kill("SIGKILL");
  // The dead pipe lets every writer go.
  await Promise.all(taken);
});

test("a last line without newline is delivered, before the exit", async () => {
  const order: string[] = [];
  const script = `printf '{"a":1}\\n{"last":true}'`;
  await using watched = watchAgent(shellSpec(script), {
    output: (lines) => void order.push(...lines.map(textOf)),
    exited: () => void order.push("exited"),
  });
  await watched.exited();
  expect(order).toEqual(['{"a":1}', '{"last":true}', "exited"]);
});

verifies(
  "AGENT-SPAWN-FAILS",
  "a program that cannot be started is an exit with a reason, once, and never an exception",
  async () => {
    const here = import.meta.dirname;
    const cases: [Partial<AgentSpec>, RegExp][] = [
      [{ command: "/nonexistent/claude" }, /program.*does not exist \(ENOENT\)/],
      [{ command: join(here, "process.test.ts") }, /may not be executed.*\(EACCES\)/],
      [{ command: "/bin/true", cwd: "/nonexistent" }, /working folder does not exist/],
      [{ command: "/bin/true/x" }, /ENOTDIR/],
      [{ command: "/bin/true", args: ["x".repeat(200_000)] }, /too large together \(E2BIG\)/],
      [{ command: "/bin/true", args: ["a\0b"] }, /ERR_INVALID_ARG_VALUE/],
    ];
    for (const [overrides, reason] of cases) {
      const watched = watchAgent(fakeAgentSpec({}, { args: [], ...overrides }));
      expect(watched.agent.pid).toBeUndefined();
      await watched.agent.write({ type: "x" });
      const exit = await watched.exited();
      expect(exit.spawnError).toMatch(reason);
      expect(exit.spawnError).not.toContain("/");
      expect(exit).toMatchObject({ code: null, signal: null, how: "exited" });
      expect(await watched.agent.stop({ eofMs: 0, termMs: 0 })).toEqual(exit);
      expect(watched.exits).toHaveLength(1);
    }
  },
);

verifies(
  "AGENT-SPAWN-FAILS",
  "an agent that ends at once, or closes its stdin, costs only itself (EPIPE)",
  async () => {
    const megabyte = { type: "x", text: "z".repeat(BYTES) };
    const [gone, late, deaf, fine] = [
      watchAgent(fakeAgentSpec({ exitCode: 3, stderr: "out of luck\n" })),
      watchAgent(shellSpec("sleep 0.05; exit 4")),
      watchAgent(shellSpec("exec <&-; sleep 300")),
      watchAgent(fakeAgentSpec()),
    ];
    for (const watched of [gone, late, deaf]) {
      for (let count = 0; count < 3; count++) void watched.agent.write(megabyte);
    }
    expect(await gone.exited()).toMatchObject({ code: 3, how: "exited", stderrTail: "out of luck\n" });
    expect(await late.exited()).toMatchObject({ code: 4, how: "exited" });
    expect(await deaf.exited()).toMatchObject({ how: "SIGTERM", signal: "SIGTERM" });
    await Promise.all([gone, late, deaf].map((watched) => watched.agent.write(megabyte)));
    expect(await fine.turn("still here")).toBe("echo: still here");
    await fine.agent.stop({ eofMs: 5000, termMs: 0 });
  },
);

test("of stderr the last 8 KiB are kept, as text", async () => {
  await using watched = watchAgent(
    shellSpec(`head -c 300000 /dev/zero | tr '\\0' a >&2; printf 'the \\377 end' >&2; exit 1`),
  );
  const { stderrTail } = await watched.exited();
  expect(stderrTail.endsWith("aaa" + "the \uFFFD end")).toBe(true);
  expect(Buffer.byteLength(stderrTail.replace("\uFFFD", "?"))).toBe(8 * 1024);
});

test("a hundred agents leave no zombie and no file descriptor behind", async () => {
  const openFiles = () => readdirSync("/proc/self/fd").length;
  await watchAgent(shellSpec("exit 0")).exited();
  const before = openFiles();
  for (let round = 0; round < 10; round++) {
    const agents = Array.from({ length: 10 }, () => watchAgent(shellSpec("cat >/dev/null")));
    await Promise.all(agents.map((watched) => watched.agent.stop({ eofMs: 10_000, termMs: 0 })));
    for (const { agent } of agents) expect(readProcess(agent.pid ?? 0)).toBeUndefined();
  }
  expect(openFiles()).toBeLessThanOrEqual(before + 2);
});
