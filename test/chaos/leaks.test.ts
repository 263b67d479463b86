import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect } from "vitest";
import { waitUntil } from "../../src/agents/process-group.ts";
import { stopRunner } from "../kit/runner-process.ts";
import { callServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { countDescriptors, processesOf, socketsBelow, zombiesOf } from "./processes.ts";
import { makeWorld, type World } from "./world.ts";

/** `CHAOS_FULL=1` counts as far as docs/reliability.md says; without it the same things are looked at in a tenth of the time. */
const IS_FULL = process.env["CHAOS_FULL"] === "1";
const CYCLES = IS_FULL ? 200 : 40;
const AT_ONCE = 8;
const CRASHES = IS_FULL ? 50 : 8;

/** One session: made, one turn, purged. */
async function cycle(world: World): Promise<void> {
  const call = (method: string, path: string, body?: unknown) => callServer(world.url(), method, path, { body });
  const { body } = await call("POST", "/v1/sessions", {});
  const turn = await call("POST", `/v1/sessions/${body.id}/turns`, { text: "hello", wait_s: 60 });
  expect(turn.body.outcome).toBe("completed");
  expect((await call("DELETE", `/v1/sessions/${body.id}?purge=true`)).status).toBeLessThan(300);
}

/** cgroups that agents of this machine have, whosever they are. */
function agentCgroups(): string[] {
  try {
    const own = /^0::(\/.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1] ?? "/";
    const mount = /^\S+ \S+ \S+ \/ (\S+) .* - cgroup2 /m.exec(readFileSync("/proc/self/mountinfo", "utf8"))?.[1] ?? "";
    return readdirSync(join(mount, own)).filter((name) => name.startsWith("patchbay-agent-"));
  } catch {
    return [];
  }
}

async function expectNothingLeft(world: World, cgroupsBefore: readonly string[]): Promise<void> {
  await world.end("SIGTERM");
  await stopRunner(world.dataDir);
  await waitUntil(() => processesOf(world.folder).length === 0);
  expect(processesOf(world.folder)).toEqual([]);
  expect(socketsBelow(world.folder)).toEqual([]);
  const isOurs = (name: string): boolean => !cgroupsBefore.includes(name) && !existsSync(`/proc/${name.split("-")[2]}`);
  expect(agentCgroups().filter(isOurs)).toEqual([]);
}

verifies(
  "CHAOS",
  `known bug 19: ${CYCLES} sessions made and purged leave no process, zombie, socket, cgroup, folder or descriptor`,
  async () => {
    const cgroups = agentCgroups();
    const world = await makeWorld("auto");
    await world.start();
    const server = world.serverPid();
    const runner = world.runnerPid() ?? 0;
    let left = CYCLES;
    const work = async (): Promise<void> => {
      while (left > 0) {
        left -= 1;
        await cycle(world);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, () => cycle(world)));
    const before = [countDescriptors(server), countDescriptors(runner)];
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const after = [countDescriptors(server), countDescriptors(runner)];
    for (const [index, count] of after.entries()) expect(count).toBeLessThanOrEqual((before[index] ?? 0) + AT_ONCE);
    expect(zombiesOf([server, runner])).toEqual([]);
    expect(readdirSync(join(world.dataDir, "homes"))).toEqual([]);
    expect(readdirSync(join(world.dataDir, "workspaces", "default", "sessions"))).toEqual([]);
    expect(readdirSync(join(world.dataDir, "runner", "spool"))).toEqual([]);
    await expectNothingLeft(world, cgroups);
    await world.remove();
  },
  180_000,
);

verifies(
  "CHAOS",
  `${CRASHES} crashes of the server leave one runner and the agents that were there, then nothing; the data directory opens each time`,
  async () => {
    const cgroups = agentCgroups();
    const world = await makeWorld("auto");
    await world.start();
    const { body } = await callServer(world.url(), "POST", "/v1/sessions", { body: {} });
    await callServer(world.url(), "POST", `/v1/sessions/${body.id}/turns`, { body: { text: "hello", wait_s: 60 } });
    const runner = world.runnerPid() ?? 0;
    const agents = world.agents();
    const descriptors = countDescriptors(runner);
    for (let crash = 0; crash < CRASHES; crash += 1) {
      await world.end("SIGKILL");
      await world.start();
    }
    expect(world.runnerPid()).toBe(runner);
    expect(world.agents()).toEqual(agents);
    expect(countDescriptors(runner)).toBeLessThanOrEqual(descriptors + 2);
    const turn = await callServer(world.url(), "POST", `/v1/sessions/${body.id}/turns`, {
      body: { text: "again", wait_s: 60 },
    });
    expect(turn.body.outcome).toBe("completed");
    await callServer(world.url(), "DELETE", `/v1/sessions/${body.id}`);
    await expectNothingLeft(world, cgroups);
    expect(existsSync(dirname(world.dataDir))).toBe(true);
    await world.remove();
  },
  180_000,
);
