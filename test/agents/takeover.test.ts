import { spawn } from "node:child_process";
import { expect, test } from "vitest";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import { endUntilNone } from "../../src/agents/runner/sweep-homes.ts";
import { seededRandom } from "../kit/seeded-random.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { makePairedRunners } from "./paired-runner.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

const PLACE = { tenant: "acme", sessionId: "moved" };
const CLI_SESSION = "6f1f0f5e-0f0e-4f7e-9a77-27b3c0a3d001";

test("a server that is over is refused, and the one that owns the runner is left alone", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const owner = await runners.server({ epoch: 2 });
  const lost: unknown[] = [];
  const stale = runners.server({ epoch: 1, onLost: (error) => lost.push(error) });
  await expect(stale).rejects.toMatchObject({
    code: "runner_unavailable",
    details: { reason: "stale_owner", epoch: 1, owner: 2 },
  });
  expect(lost).toHaveLength(1);
  expect(owner.isLinked()).toBe(true);
  expect(await owner.files.hasTranscript(PLACE, CLI_SESSION)).toBe(false);
});

test("the owner that was replaced is told so, and does not come back", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const replaced = Promise.withResolvers<unknown>();
  const first = await runners.server({ epoch: 1, onLost: replaced.resolve });
  const watched = watchRun(await first.start(requestFor(shellProgram(temp.path, "cat"))));
  const second = await runners.server({ epoch: 2 });
  expect(await replaced.promise).toMatchObject({ details: { reason: "stale_owner" } });
  await expect(first.start(requestFor(shellProgram(temp.path, "cat")))).rejects.toMatchObject({
    code: "runner_unavailable",
  });
  // What it still writes reaches nobody.
  watched.run.write(1, { type: "late" });
  const run = await second.join(watched.run.run);
  if (run === undefined) throw new Error("the run is there");
  const taken = watchRun(run);
  run.write(1, { type: "mine" });
  await taken.until(() => taken.outputs.length === 1);
  expect(taken.texts()).toEqual(['{"type":"mine"}']);
});

test("a transcript that the server before had begun to write is whole when the next one is welcomed", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const first = await runners.server({ epoch: 1 });
  const names = Array.from({ length: 400 }, (_, index) => `${CLI_SESSION}/subagents/agent-${index}.jsonl`);
  const bytes = Buffer.from("{}\n");
  const transcript = new Map([[`${CLI_SESSION}.jsonl`, bytes], ...names.map((name) => [name, bytes] as const)]);
  const storing = first.files.writeTranscript(PLACE, CLI_SESSION, transcript);
  storing.catch(() => {});
  const before = runners.wire();
  while (before.toRunnerBytes() < 10_000) await new Promise((resolve) => setImmediate(resolve));
  const second = await runners.server({ epoch: 2 });
  // The main file comes last.
  expect(await second.files.hasTranscript(PLACE, CLI_SESSION)).toBe(true);
});

test("links that are cut at any byte, in both directions, cost neither a line nor an order of it", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const random = seededRandom(20_261_201);
  const server = await runners.server();
  const program = shellProgram(
    temp.path,
    `while read -r line; do for i in $(seq 1 30); do echo "$i $line"; done; done`,
  );
  const watched = watchRun(await server.start(requestFor(program)));
  const cuts = 25;
  for (let cut = 0; cut < cuts; cut++) {
    // A greeting takes about 300 bytes of it: some links break in the middle of theirs.
    runners.budgets.push({
      toRunner: 100 + Math.floor(random() * 4000),
      toServer: 100 + Math.floor(random() * 20_000),
    });
  }
  const lines = 200;
  for (let id = 1; id <= lines; id++) {
    watched.run.write(id, { type: "x", id, text: "y".repeat(Math.floor(random() * 300)) });
    if (id === 1) runners.wire().cut();
    if (id % 8 === 0) await watched.until(() => watched.outputs.length >= (id - 16) * 30);
    watched.run.acknowledge(Math.floor(watched.outputs.length * random()));
  }
  await watched.until(() => watched.outputs.length >= lines * 30);
  await watched.until(() => watched.written.at(-1) === lines);
  watched.run.stop({ eofMs: 10_000, termMs: 0 });
  await watched.exited();
  const seen = watched.texts().map((text) => /^(\d+) \{"type":"x","id":(\d+),/.exec(text)?.slice(1, 3).map(Number));
  expect(seen).toEqual(
    Array.from({ length: lines * 30 }, (_, index) => [(index % 30) + 1, Math.floor(index / 30) + 1]),
  );
  expect(runners.links()).toBeGreaterThan(cuts / 2);
});

test("what an earlier runner left is looked for until nothing more is found", async () => {
  const isRunning = (pid: number): boolean => {
    const entry = readProcess(pid);
    return entry !== undefined && isAlive(entry);
  };
  const pids: number[] = [];
  // Each look finds one more: it was started while the one before was killed.
  await endUntilNone(() => {
    if (pids.length < 4) pids.push(spawn("sleep", ["300"]).pid ?? 0);
    return pids.filter(isRunning);
  });
  expect(pids).toHaveLength(4);
  expect(pids.filter(isRunning)).toEqual([]);
  // One that is found for ever is given up on.
  let looks = 0;
  await endUntilNone(() => {
    looks += 1;
    return [0x3fff_ffff];
  });
  expect(looks).toBeLessThan(100);
});
