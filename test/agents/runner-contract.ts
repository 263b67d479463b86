import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import type { Runner, StartRequest } from "../../src/agents/runner-port.ts";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

/** A runner under test, with everything that it needs, at home in a folder. */
export interface TestRunner extends AsyncDisposable {
  readonly runner: Runner;
}

const NOW = { eofMs: 0, termMs: 0 };
const HELLO = { type: "user", message: { role: "user", content: "hello" } };

const isRunning = (pid: number): boolean => {
  const entry = readProcess(pid);
  return entry !== undefined && isAlive(entry);
};

/** What every Runner promises, wherever it is. */
export function runnerContract(name: string, make: (folder: string) => Promise<TestRunner>): void {
  const contract = (title: string, body: (runner: Runner, folder: string) => Promise<void>, timeout = 30_000): void =>
    test(
      title,
      async () => {
        using temp = makeTempDir();
        await using made = await make(temp.path);
        await body(made.runner, temp.path);
      },
      timeout,
    );

  describe(name, () => {
    contract("a run is started, written to, read and stopped", async (runner, folder) => {
      const run = await runner.start(requestFor(fakeAgentBinary(folder)));
      expect(run).toMatchObject({ last: 0, written: 0, resumed: false });
      expect(run.process?.pid).toBe(run.pid);
      const watched = watchRun(run);
      run.write(1, HELLO);
      await watched.until(() => watched.texts().some((text) => text.includes('"result":"echo: hello"')));
      await watched.until(() => watched.written.includes(1));
      expect(run.written).toBe(1);
      expect(runner.runs()).toEqual([run.run]);
      run.stop({ eofMs: 5000, termMs: 1000 });
      expect(await watched.exited()).toMatchObject({ code: 0, how: "eof" });
      expect(watched.numbers.at(-1)).toBe(watched.outputs.length);
      expect(watched.exits.map(({ number }) => number)).toEqual([watched.outputs.length + 1]);
      run.acknowledge(watched.outputs.length + 1);
      expect(runner.runs()).toEqual([]);
      expect(await runner.join(run.run)).toBeUndefined();
    });

    contract("lines come in order, with their numbers, and empty ones have none", async (runner, folder) => {
      const program = shellProgram(
        folder,
        `for i in $(seq 1 5000); do echo "{\\"n\\":$i}"; echo; done; printf '{"last":1}'`,
      );
      const watched = watchRun(await runner.start(requestFor(program)));
      await watched.exited();
      const wanted = [...Array.from({ length: 5000 }, (_, index) => `{"n":${index + 1}}`), '{"last":1}'];
      expect(watched.texts()).toEqual(wanted);
      expect(watched.numbers).toEqual(watched.numbers.toSorted((one, other) => one - other));
      expect(watched.exits[0]?.number).toBe(5002);
    });

    contract("who attaches late has lost nothing, whether the agent lives or not", async (runner, folder) => {
      const program = shellProgram(folder, `seq 1 30000 | sed 's/.*/{"n":&}/'`);
      const run = await runner.start(requestFor(program));
      // Either it waits with a full pipe, or has ended.
      const other = watchRun(await runner.start(requestFor(shellProgram(folder, "echo '{}'"))));
      await other.exited();
      const watched = watchRun(run);
      await watched.exited();
      expect(watched.outputs.length).toBe(30_000);
      expect(watched.texts().at(-1)).toBe('{"n":30000}');
      expect(watched.exits).toHaveLength(1);
    });

    contract("a handler that is slow is not called again before it is done", async (runner, folder) => {
      const program = shellProgram(folder, `head -c 8000000 /dev/zero | tr '\\0' 'x' | fold -w 1000`);
      let inside = 0;
      let most = 0;
      const watched = watchRun(await runner.start(requestFor(program)), 0, async () => {
        inside += 1;
        most = Math.max(most, inside);
        await new Promise((resolve) => setImmediate(resolve));
        inside -= 1;
      });
      await watched.exited();
      expect(most).toBe(1);
      expect(inside).toBe(0);
      expect(watched.outputs.length).toBe(8000);
    });

    contract("50 MiB in one line, and in many, come through whole", async (runner, folder) => {
      const big = shellProgram(folder, `printf '{"x":"'; head -c 52428800 /dev/zero | tr '\\0' 'y'; echo '"}'`);
      const many = shellProgram(folder, `head -c 52428800 /dev/zero | tr '\\0' 'z' | fold -w 65535`);
      const one = watchRun(await runner.start(requestFor(big)));
      await one.exited();
      expect(one.outputs.map(({ kind, bytes }) => [kind, Buffer.from(Object(bytes)).length])).toEqual([
        ["line", 52_428_808],
      ]);
      const other = watchRun(await runner.start(requestFor(many)));
      await other.exited();
      expect(other.texts().reduce((sum, text) => sum + text.length, 0)).toBe(52_428_800);
    });

    contract("a line over the limit is told by its size, and counts", async (runner, folder) => {
      const program = shellProgram(
        folder,
        `echo '{"a":1}'; head -c 3000 /dev/zero | tr '\\0' 'x'; echo; echo '{"b":2}'`,
      );
      const watched = watchRun(await runner.start(requestFor(program, { lineLimitBytes: 1000 })));
      await watched.exited();
      expect(watched.outputs.map(({ kind }) => kind)).toEqual(["line", "dropped", "line"]);
      expect(watched.outputs[1]).toEqual({ kind: "dropped", bytes: 3000 });
      expect(watched.exits[0]?.number).toBe(4);
    });

    contract(
      "each id is written once, large ones too, and a line that the CLI would die of not at all",
      async (runner, folder) => {
        const out = `${folder}/stdin`;
        const watched = watchRun(await runner.start(requestFor(shellProgram(folder, `cat > ${out}; echo '{}'`))));
        const text = "é".repeat(1_000_000);
        watched.run.write(1, { type: "x", text });
        watched.run.write(2, { type: "x" });
        watched.run.write(2, { type: "again" });
        watched.run.write(1, { type: "again" });
        expect(() => watched.run.write(3, { type: "user" })).toThrow(expect.objectContaining({ code: "bad_request" }));
        watched.run.write(3, { type: "y" });
        await watched.until(() => watched.written.at(-1) === 3);
        watched.run.stop({ eofMs: 10_000, termMs: 0 });
        expect(await watched.exited()).toMatchObject({ code: 0 });
        const lines = readFileSync(out, "utf8")
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line));
        expect(lines).toEqual([{ type: "x", text }, { type: "x" }, { type: "y" }]);
      },
    );

    contract("an agent that closes its stdin costs only itself", async (runner, folder) => {
      const watched = watchRun(await runner.start(requestFor(shellProgram(folder, "exec <&-; echo '{}'; sleep 300"))));
      await watched.until(() => watched.outputs.length === 1);
      for (let id = 1; id <= 50; id++) watched.run.write(id, HELLO);
      await watched.until(() => watched.written.at(-1) === 50);
      expect((await watched.exited()).how).not.toBe("exited");
    });

    contract("a program that is not there, or may not run, is an exit with its reason", async (runner, folder) => {
      const run = await runner.start(requestFor(`${folder}/missing`));
      expect(run).toMatchObject({ pid: undefined, process: undefined });
      const watched = watchRun(run);
      expect((await watched.exited()).spawnError).toMatch(/ENOENT/);
      expect(watched.exits[0]?.number).toBe(1);
      run.acknowledge(1);
      expect(runner.runs()).toEqual([]);
    });

    contract("what is refused is refused with its code, and starts nothing", async (runner, folder) => {
      const program = shellProgram(folder, "sleep 300");
      const cases: [Partial<StartRequest>, string][] = [
        [{ place: { tenant: "acme", sessionId: "s1", cwd: "../other" } }, "cwd_refused"],
        [{ options: { args: ["--dangerously-skip-permissions"] } }, "agent_arg_refused"],
        [{ options: { env: { LD_PRELOAD: "x" } } }, "agent_arg_refused"],
      ];
      for (const [more, code] of cases) {
        await expect(runner.start(requestFor(program, more))).rejects.toMatchObject({
          code,
          details: expect.anything(),
        });
      }
      expect(runner.runs()).toEqual([]);
    });

    contract("each run is started once, however often it is asked for", async (runner, folder) => {
      const request = requestFor(shellProgram(folder, "sleep 300"));
      const [one, other] = await Promise.all([runner.start(request), runner.start(request)]);
      expect(other.pid).toBe(one.pid);
      const joined = await runner.join(request.run);
      expect(joined?.pid).toBe(one.pid);
      expect(runner.runs()).toEqual([request.run]);
      const watched = watchRun(joined ?? one);
      watched.run.stop(NOW);
      await watched.exited();
    });

    contract("the stop ladder ends everything, also what deaf agents started", async (runner, folder) => {
      const program = shellProgram(
        folder,
        `trap '' TERM; sleep 300 & echo "{\\"child\\":$!}"; while true; do sleep 300; done`,
      );
      const watched = watchRun(await runner.start(requestFor(program)));
      await watched.until(() => watched.outputs.length === 1);
      const child: number = JSON.parse(watched.texts()[0] ?? "").child;
      expect(isRunning(child)).toBe(true);
      watched.run.stop({ eofMs: 100, termMs: 100 });
      watched.run.stop({ eofMs: 60_000, termMs: 60_000 });
      expect(await watched.exited()).toMatchObject({ signal: "SIGKILL", how: "SIGKILL" });
      expect([isRunning(watched.run.pid ?? 0), isRunning(child)]).toEqual([false, false]);
      watched.run.acknowledge(2);
    });

    contract("folders are removed, and transcripts carried, through the runner", async (runner, folder) => {
      const place = { tenant: "acme", sessionId: "moved" };
      const id = "6f1f0f5e-0f0e-4f7e-9a77-27b3c0a3d001";
      expect(await runner.files.readTranscript(place, id)).toBeUndefined();
      const big = Buffer.alloc(3_000_000, "x");
      const transcript = new Map<string, Uint8Array>([
        [`${id}.jsonl`, Buffer.from('{"a":1}\n')],
        [`${id}/subagents/agent-1.jsonl`, big],
      ]);
      await runner.files.writeTranscript(place, id, transcript);
      expect(await runner.files.hasTranscript(place, id)).toBe(true);
      const read = await runner.files.readTranscript(place, id);
      expect(
        [...(read ?? [])].map(([path, bytes]) => [
          path,
          Buffer.from(bytes).equals(Buffer.from(transcript.get(path) ?? [])),
        ]),
      ).toEqual([
        [`${id}.jsonl`, true],
        [`${id}/subagents/agent-1.jsonl`, true],
      ]);
      await expect(runner.files.writeTranscript(place, id, new Map([["../x", big]]))).rejects.toMatchObject({
        code: "bad_request",
      });
      const resumed = await runner.start(requestFor(shellProgram(folder, "echo '{}'"), { place, cliSessionId: id }));
      expect(resumed.resumed).toBe(true);
      const watched = watchRun(resumed);
      await watched.exited();
      await runner.files.remove(place);
      await runner.files.remove(place);
      expect(await runner.files.hasTranscript(place, id)).toBe(false);
      expect(
        readdirSync(folder, { recursive: true })
          .map(String)
          .filter((path) => path.includes("moved")),
      ).toEqual([]);
    });

    contract(
      "many runs at once, one of them a flood with a slow reader: the others are served",
      async (runner, folder) => {
        const flood = shellProgram(folder, `yes '{"flood":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}'`);
        const gate = Promise.withResolvers<void>();
        const slow = watchRun(await runner.start(requestFor(flood)), 0, () => gate.promise);
        await slow.until(() => slow.outputs.length > 0);
        const quick = shellProgram(folder, `while read -r line; do echo '{"seen":1}'; done`);
        const others = await Promise.all(Array.from({ length: 5 }, () => runner.start(requestFor(quick))));
        const watched = others.map((run) => watchRun(run));
        for (let id = 1; id <= 20; id++) {
          for (const { run } of watched) run.write(id, { type: "ping" });
          await Promise.all(watched.map((each) => each.until(() => each.outputs.length === id)));
        }
        slow.run.stop(NOW);
        gate.resolve();
        for (const { run } of watched) run.stop(NOW);
        await Promise.all([slow, ...watched].map((each) => each.exited()));
        expect(existsSync(`/proc/${slow.run.pid}/exe`)).toBe(false);
      },
    );
  });
}
