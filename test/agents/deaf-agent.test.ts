import { writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { createStreamLink } from "../../src/agents/runner/link.ts";
import { STDIN_WINDOW_BYTES } from "../../src/agents/runner/stdin-queue.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { createWire, makePairedRunners } from "./paired-runner.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

const MEBIBYTE = 1024 * 1024;
const line = (id: number, bytes: number) => ({ type: "x", id, text: "y".repeat(bytes) });

test("an agent that does not read holds its server up, not the runner; when it reads, it gets everything in order", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const server = await runners.server();
  const go = `${temp.path}/go`;
  const program = shellProgram(temp.path, `until [ -e ${go} ]; do sleep 0.02; done; cut -b1-20`);
  const watched = watchRun(await server.start(requestFor(program)));
  for (let id = 1; id <= 24; id++) watched.run.write(id, line(id, MEBIBYTE));
  // Over the same link, behind all that was sent.
  await server.files.hasTranscript({ tenant: "acme", sessionId: "none" }, "0b8f3c5e-8a3f-4b43-9a4e-0d6f3a6a2b11");
  expect(runners.wire().toRunnerBytes()).toBeLessThan(STDIN_WINDOW_BYTES + MEBIBYTE);
  // A link that breaks, and a further server, change nothing of that.
  runners.wire().cut();
  await server.files.hasTranscript({ tenant: "acme", sessionId: "none" }, "0b8f3c5e-8a3f-4b43-9a4e-0d6f3a6a2b11");
  expect(runners.wire().toRunnerBytes()).toBeLessThan(MEBIBYTE);
  await server.close();
  const next = await runners.server({ epoch: 2 });
  const run = await next.join(watched.run.run);
  if (run === undefined) throw new Error("the run is there");
  expect(run.written).toBeGreaterThan(1);
  expect(run.written).toBeLessThan(10);
  const again = watchRun(run);
  for (let id = 1; id <= 24; id++) run.write(id, line(id, MEBIBYTE));
  // Larger than the window: it goes alone.
  run.write(25, line(25, STDIN_WINDOW_BYTES));
  run.write(26, line(26, 1));
  await next.files.hasTranscript({ tenant: "acme", sessionId: "none" }, "0b8f3c5e-8a3f-4b43-9a4e-0d6f3a6a2b11");
  expect(runners.wire().toRunnerBytes()).toBeLessThan(2 * MEBIBYTE);
  writeFileSync(go, "");
  await again.until(() => again.written.at(-1) === 26);
  run.stop({ eofMs: 10_000, termMs: 0 });
  expect(await again.exited()).toMatchObject({ how: "eof" });
  expect(again.texts()).toEqual(
    Array.from({ length: 26 }, (_, index) => `{"type":"x","id":${index + 1},"`.slice(0, 20)),
  );
});

test("a silent link is destroyed after two heartbeats; an idle one is kept", async () => {
  const wire = createWire();
  const ends: string[] = [];
  const closed = Promise.withResolvers<void>();
  const open = (name: string, end: typeof wire.server): void =>
    createStreamLink(end, 30).open({
      frame() {},
      drained() {},
      closed() {
        ends.push(name);
        if (ends.length === 2) closed.resolve();
      },
    });
  open("server", wire.server);
  open("runner", wire.runner);
  const before = wire.toRunnerBytes();
  await expect.poll(() => wire.toRunnerBytes() - before).toBeGreaterThan(100);
  expect(ends).toEqual([]);
  wire.blackhole();
  await closed.promise;
});
