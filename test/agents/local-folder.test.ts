import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { waitUntil } from "../../src/agents/process-group.ts";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import { createStreamLink } from "../../src/agents/runner/link.ts";
import { joinLocalRunner, type LocalRunnerOptions } from "../../src/agents/runner/local.ts";
import type { RemoteRunner } from "../../src/agents/runner/remote-runner.ts";
import { type RunnerInfo, readRunnerInfo, runnerFolder } from "../../src/agents/runner/runner-folder.ts";
import { findLocalRunner, stopLocalRunner } from "../../src/agents/runner/running.ts";
import { identity } from "../../src/agents/sweep.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { runCli } from "../server/cli-process.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

/** A data directory whose runner is gone with the test. */
function makeHome(): { path: string; dataDir: string } & AsyncDisposable {
  const temp = makeTempDir();
  const dataDir = `${temp.path}/data`;
  return {
    path: temp.path,
    dataDir,
    async [Symbol.asyncDispose]() {
      await stopLocalRunner(dataDir);
      temp[Symbol.dispose]();
    },
  };
}

const joinRunner = (dataDir: string, epoch: number, more: Partial<LocalRunnerOptions> = {}): Promise<RemoteRunner> =>
  joinLocalRunner({ dataDir, workspaceRoot: `${dataDir}/workspaces`, epoch, idleMs: 10_000, ...more });

function infoOf(dataDir: string): RunnerInfo {
  const info = readRunnerInfo(runnerFolder(dataDir));
  if (info === undefined) throw new Error("no runner has said where it is");
  return info;
}

/** Runners of this data directory, by their command lines. */
function runnersOf(dataDir: string): number[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return line.includes("--local") && line.includes(`--data-dir=${dataDir}`);
    } catch {
      return false;
    }
  });
}

test("everything in a runner's folder is its user's alone; who has another secret is refused", async () => {
  await using home = makeHome();
  const first = await joinRunner(home.dataDir, 1);
  const { folder, lock, info, secret, log, spool, agents } = runnerFolder(home.dataDir);
  expect([folder, spool, agents].map(modeOf)).toEqual(["700", "700", "700"]);
  expect([lock, info, secret, log, infoOf(home.dataDir).socket].map(modeOf)).toEqual([
    ..."600 600 600 600 600".split(" "),
  ]);
  const known = readFileSync(secret, "utf8");
  writeFileSync(secret, "0".repeat(64));
  await expect(joinRunner(home.dataDir, 2)).rejects.toMatchObject({
    code: "runner_unavailable",
    details: { reason: "secret_wrong" },
  });
  expect(first.isLinked()).toBe(true);
  writeFileSync(secret, known);
  const second = await joinRunner(home.dataDir, 2);
  expect(second.isLinked()).toBe(true);
  await Promise.all([first.close(), second.close()]);
});

test("a runner of another version: the refusal names its process, and what ends it", async () => {
  await using home = makeHome();
  const { folder, info, secret } = runnerFolder(home.dataDir);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const refusal = {
    code: "version_unsupported",
    message: "The runner speaks 7 to 9.",
    details: { runner: { min: 7, max: 9 } },
  };
  const server = createServer((socket) => {
    const link = createStreamLink(socket);
    link.open({
      frame({ kind }) {
        expect(kind).toBe("hello");
        link.send({ kind: "refused", channel: 0, body: Buffer.from(JSON.stringify(refusal)) });
        link.close();
      },
      drained() {},
      closed() {},
    });
  });
  await new Promise<void>((listening) => server.listen(`${folder}/socket`, listening));
  const pid = process.pid;
  writeFileSync(info, JSON.stringify({ pid, startTime: "0", socket: `${folder}/socket`, version: "7.0.0" }));
  writeFileSync(secret, "0".repeat(64));
  await expect(joinRunner(home.dataDir, 1)).rejects.toMatchObject({
    code: "runner_unavailable",
    details: { reason: "version_unsupported", pid },
    message: expect.stringMatching(
      new RegExp(`process ${pid} \\(${info}\\), of version 7\\.0\\.0.*runner --stop.*SIGTERM.*ends its agents`),
    ),
  });
  server.close();
});

test("a data directory whose path is too long for a socket has it in a short folder, which goes with the runner", async () => {
  await using home = makeHome();
  const dataDir = `${home.path}/${"long-".repeat(24)}`;
  const runner = await joinRunner(dataDir, 1);
  const { socket } = infoOf(dataDir);
  expect(Buffer.byteLength(socket)).toBeLessThan(100);
  expect([modeOf(dirname(socket)), modeOf(socket)]).toEqual(["700", "600"]);
  const watched = watchRun(await runner.start(requestFor(shellProgram(home.path, "echo '{}'"))));
  await watched.exited();
  await runner.close();
  await stopLocalRunner(dataDir);
  expect(existsSync(dirname(socket))).toBe(false);
});

test("what a killed runner wrote about itself keeps nobody from the next one, and counts for no other process", async () => {
  await using home = makeHome();
  const { folder, info } = runnerFolder(home.dataDir);
  const first = await joinRunner(home.dataDir, 1);
  const before = infoOf(home.dataDir);
  const watched = watchRun(await first.start(requestFor(shellProgram(home.path, "echo '{}'; sleep 300"))));
  await watched.until(() => watched.outputs.length === 1);
  const agent = watched.run.pid ?? 0;
  await first.close();
  process.kill(before.pid, "SIGKILL");
  await waitUntil(() => identity(before.pid)?.startTime !== before.startTime);
  // Its file, its socket and its agent's are still there.
  expect(readRunnerInfo(runnerFolder(home.dataDir))).toEqual(before);
  expect(readdirSync(`${folder}/agents`)).toHaveLength(1);
  expect(findLocalRunner(home.dataDir)).toBeUndefined();
  const second = await joinRunner(home.dataDir, 2);
  expect(infoOf(home.dataDir).pid).not.toBe(before.pid);
  expect(second.runs()).toEqual([]);
  const left = readProcess(agent);
  expect(left !== undefined && isAlive(left)).toBe(false);
  await second.close();
  await stopLocalRunner(home.dataDir);
  // The pid is somebody else's now.
  writeFileSync(info, JSON.stringify({ ...before, pid: process.pid }));
  expect(findLocalRunner(home.dataDir)).toBeUndefined();
  expect(await stopLocalRunner(home.dataDir)).toBeUndefined();
});

test("two servers that start at once find one runner; the later one has it, and what it says is in one log", async () => {
  await using home = makeHome();
  mkdirSync(home.dataDir);
  const log = runnerFolder(home.dataDir).log;
  const [older, newer] = await Promise.allSettled([joinRunner(home.dataDir, 1), joinRunner(home.dataDir, 2)]);
  if (newer.status !== "fulfilled") throw newer.reason;
  await expect.poll(() => runnersOf(home.dataDir)).toEqual([infoOf(home.dataDir).pid]);
  const watched = watchRun(await newer.value.start(requestFor(shellProgram(home.path, "echo '{}'"))));
  await watched.exited();
  writeFileSync(log, "what it said\n", { flag: "a" });
  await newer.value.close();
  if (older.status === "fulfilled") await older.value.close();
  await stopLocalRunner(home.dataDir);
  const next = await joinRunner(home.dataDir, 3);
  expect(readFileSync(log, "utf8")).toContain("what it said\n");
  await next.close();
  await stopLocalRunner(home.dataDir);
  // It does not grow for ever.
  writeFileSync(log, "x".repeat(2_000_000), { flag: "a" });
  const last = await joinRunner(home.dataDir, 4);
  expect(statSync(log).size).toBeLessThan(100_000);
  await last.close();
});

test("`patchbay runner --stop` ends a runner and its agents in order, and says how many; doctor tells of it", async () => {
  await using home = makeHome();
  const args = ["--data-dir", home.dataDir];
  const none = await runCli(["runner", "--stop", ...args]);
  expect(none).toMatchObject({ code: 0, stdout: `No runner runs for ${home.dataDir}.\n` });
  const runner = await joinRunner(home.dataDir, 1);
  const { pid } = infoOf(home.dataDir);
  const done = `${home.path}/done`;
  const program = shellProgram(home.path, `echo '{}'; cat; echo eof > ${done}`);
  const watched = watchRun(await runner.start(requestFor(program)));
  await watched.until(() => watched.outputs.length === 1);
  await runner.close();
  const doctor = await runCli(["doctor", "--port", "0", ...args]);
  expect(doctor.stdout).toMatch(new RegExp(`^ok {4}a runner runs \\(pid ${pid}, version \\S+, agents: 1\\)$`, "m"));
  const stopped = await runCli(["runner", "--stop", ...args]);
  expect(stopped).toMatchObject({ code: 0, stdout: `Stopped the runner (pid ${pid}); agents ended: 1.\n` });
  expect(readFileSync(done, "utf8")).toBe("eof\n");
  expect(findLocalRunner(home.dataDir)).toBeUndefined();
});
