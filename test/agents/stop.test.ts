import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { enterCgroup } from "../../src/agents/cgroup.ts";
import { groupMembers, isAlive, readProcess } from "../../src/agents/process-table.ts";
import { createStopLadder } from "../../src/agents/stop-ladder.ts";
import { identity, sweep } from "../../src/agents/sweep.ts";
import { fakeAgentSpec } from "../kit/fake-agent-spec.ts";
import { verifies } from "../kit/verifies.ts";
import { watchAgent } from "./watched-agent.ts";

const isRunning = (pid: number): boolean => {
  const entry = readProcess(pid);
  return entry !== undefined && isAlive(entry);
};

/** Whether this machine lets us make cgroups; where it does not, a child that leaves its session cannot be caught. */
const hasCgroups = (() => {
  const child = spawn("sleep", ["300"]);
  const group = enterCgroup(child.pid ?? 0, 0);
  child.kill("SIGKILL");
  group?.kill();
  child.once("exit", () => group?.remove());
  return group !== undefined;
})();

verifies("AGENT-STOP", "an agent that heeds EOF ends by it", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  expect(await watched.turn("hello")).toBe("echo: hello");
  expect(await watched.agent.stop({ eofMs: 20_000, termMs: 20_000 })).toMatchObject({
    code: 0,
    signal: null,
    how: "eof",
  });
});

verifies("AGENT-STOP", "one that ignores EOF gets SIGTERM, one that ignores that too gets SIGKILL", async () => {
  await using stubborn = watchAgent(fakeAgentSpec({ ignoreEof: true }));
  await using deaf = watchAgent(fakeAgentSpec({ ignoreEof: true, ignoreSigterm: true }));
  await Promise.all([stubborn.turn("ready"), deaf.turn("ready")]);
  expect(await stubborn.agent.stop({ eofMs: 50, termMs: 20_000 })).toMatchObject({ signal: "SIGTERM", how: "SIGTERM" });
  expect(await deaf.agent.stop({ eofMs: 50, termMs: 50 })).toMatchObject({ signal: "SIGKILL", how: "SIGKILL" });
  for (const { agent } of [stubborn, deaf]) expect(readProcess(agent.pid ?? 0)).toBeUndefined();
});

verifies("AGENT-STOP", "one that was gone before anybody asked says so, and exited is called once", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  void watched.agent.write({ type: "user", message: { role: "user", content: "!die 7" } });
  const exit = await watched.exited();
  expect(exit).toMatchObject({ code: 7, signal: null, how: "exited" });
  expect(await watched.agent.stop({ eofMs: 0, termMs: 0 })).toEqual(exit);
  expect(watched.exits).toHaveLength(1);
});

verifies("AGENT-STOP", "a killed agent is an exit with its signal", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  void watched.agent.write({ type: "user", message: { role: "user", content: "!kill" } });
  expect(await watched.exited()).toMatchObject({ code: null, signal: "SIGKILL", how: "exited" });
});

verifies("AGENT-STOP", "children of the agent are gone before exited is called, however it ended", async () => {
  for (const end of ["stop", "die"]) {
    let wasRunning: boolean | undefined;
    let child = 0;
    await using watched = watchAgent(fakeAgentSpec(), {
      exited() {
        wasRunning = isRunning(child);
      },
    });
    child = Number(await watched.turn("!child"));
    expect(isRunning(child)).toBe(true);
    // Where no cgroup can be made, the group is what the kill reaches.
    expect(readProcess(child)?.group).toBe(watched.agent.pid);
    if (end === "stop") void watched.agent.stop({ eofMs: 20_000, termMs: 0 });
    else void watched.agent.write({ type: "user", message: { role: "user", content: "!die 1" } });
    // The child holds the agent's stdout open; that must not hold up the exit.
    expect(await watched.exited()).toMatchObject({ how: end === "stop" ? "eof" : "exited" });
    expect(wasRunning).toBe(false);
  }
});

verifies(
  "AGENT-STOP",
  "a child in a session of its own is caught where cgroups work, and never holds up the exit",
  async () => {
    await using watched = watchAgent(fakeAgentSpec());
    const child = Number(await watched.turn("!setsid"));
    try {
      expect(await watched.agent.stop({ eofMs: 20_000, termMs: 0 })).toMatchObject({ code: 0, how: "eof" });
      expect(isRunning(child)).toBe(!hasCgroups);
    } finally {
      if (isRunning(child)) process.kill(child, "SIGKILL");
    }
  },
);

test("a cgroup is removed with its agent", async () => {
  await using watched = watchAgent(fakeAgentSpec());
  await watched.turn("hello");
  const pid = watched.agent.pid ?? 0;
  const path = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, "utf8"))?.[1] ?? "";
  expect(path.includes("patchbay-agent-")).toBe(hasCgroups);
  await watched.agent.stop({ eofMs: 20_000, termMs: 0 });
  const mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
  if (hasCgroups) expect(mounts.some((mount) => existsSync(mount + path))).toBe(false);
});

test("a second stop can only make it faster", async () => {
  await using watched = watchAgent(fakeAgentSpec({ ignoreEof: true, ignoreSigterm: true }));
  await watched.turn("ready");
  const first = watched.agent.stop({ eofMs: 3_600_000, termMs: 3_600_000 });
  const second = watched.agent.stop({ eofMs: 0, termMs: 0 });
  expect(await first).toMatchObject({ how: "SIGKILL" });
  expect(await second).toBe(await first);
});

test("the ladder takes each rung's shorter patience and stops with its process", async () => {
  const taken: string[] = [];
  const killed = Promise.withResolvers<void>();
  const ladder = createStopLadder({
    eof: () => void taken.push("eof"),
    term: () => void taken.push("SIGTERM"),
    kill() {
      taken.push("SIGKILL");
      killed.resolve();
    },
  });
  ladder.stop({ eofMs: 1, termMs: 3_600_000 });
  ladder.stop({ eofMs: 3_600_000, termMs: 1 });
  ladder.stop({ eofMs: 3_600_000, termMs: 3_600_000 });
  await killed.promise;
  expect(taken).toEqual(["eof", "SIGTERM", "SIGKILL"]);
  expect(ladder.ended()).toBe("SIGKILL");
  ladder.kill();
  ladder.stop({ eofMs: 0, termMs: 0 });
  expect(taken).toHaveLength(3);
});

verifies("AGENT-STOP", "what a crashed server left is swept by pid and start time, with its children", async () => {
  const leader = spawn("sh", ["-c", "sleep 300 & echo $!; wait"], {
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [line] = await once(leader.stdout, "data");
  const child = Number(String(line));
  const found = identity(leader.pid ?? 0);
  if (found === undefined) throw new Error("no identity");
  const other = { ...found, startTime: found.startTime.replace(/^\d+/, (ticks) => String(Number(ticks) + 1)) };
  const otherBoot = { ...found, startTime: found.startTime.replace(/@.*$/, "@another") };
  await sweep(other);
  await sweep(otherBoot);
  expect(isRunning(leader.pid ?? 0) && isRunning(child)).toBe(true);
  await sweep(found);
  expect(isRunning(leader.pid ?? 0) || isRunning(child)).toBe(false);
  await sweep(found);
});

verifies("AGENT-STOP", "children are swept when their leader is gone already", async () => {
  const leader = spawn("sh", ["-c", "sleep 300 & echo $!; read line"], {
    detached: true,
    stdio: ["pipe", "pipe", "ignore"],
  });
  const [line] = await once(leader.stdout, "data");
  const found = identity(leader.pid ?? 0);
  leader.stdin.end();
  await once(leader, "exit");
  expect(isRunning(Number(String(line)))).toBe(true);
  if (found !== undefined) await sweep(found);
  expect(groupMembers(leader.pid ?? 0)).toEqual([]);
  expect(isRunning(Number(String(line)))).toBe(false);
});

test("a process that is none has no identity", () => {
  expect(identity(2 ** 30)).toBeUndefined();
  expect(identity(process.pid)).toEqual(identity(process.pid));
});
