import { expect, test } from "vitest";
import { makeTempDir } from "../kit/temp-dir.ts";
import { makePairedRunners } from "./paired-runner.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

test("a runner that dies between a server's join and its attach has lost the run: told once, with the next number", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const earlier = await runners.server();
  const request = requestFor(shellProgram(temp.path, "seq 1 5; sleep 300"));
  const watched = watchRun(await earlier.start(request));
  await watched.until(() => watched.outputs.length === 5);
  await earlier.close();
  const next = await runners.server({ epoch: 2 });
  const run = await next.join(request.run);
  if (run === undefined) throw new Error("the run is there");
  const links = runners.links();
  await runners.replace();
  // The next link, and what follows on it, has come before anybody attaches.
  await expect.poll(() => runners.links()).toBeGreaterThan(links);
  await next.files.hasTranscript(request.place, request.cliSessionId);
  const after = watchRun(run, 5);
  expect(await after.exited()).toMatchObject({ lost: true });
  expect(after.exits.map(({ number }) => number)).toEqual([6]);
  run.acknowledge(6);
  expect(next.runs()).toEqual([]);
});

test("an exit that was stored before the runner died is not followed by another one", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const earlier = await runners.server();
  const request = requestFor(shellProgram(temp.path, "seq 1 5"));
  const watched = watchRun(await earlier.start(request));
  await watched.exited();
  await earlier.close();
  const next = await runners.server({ epoch: 2 });
  const run = await next.join(request.run);
  if (run === undefined) throw new Error("the run is there");
  expect(run.last).toBe(6);
  const links = runners.links();
  await runners.replace();
  await expect.poll(() => runners.links()).toBeGreaterThan(links);
  const after = watchRun(run, 6);
  await next.files.hasTranscript(request.place, request.cliSessionId);
  expect(after.exits).toEqual([]);
  run.acknowledge(6);
  expect(next.runs()).toEqual([]);
});
