import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./socket-client.ts";
import type { World } from "./world.ts";

/** What may happen to a world, and how often it did. */
export type FaultName =
  | "server killed"
  | "server drained"
  | "runner killed"
  | "agent killed"
  | "link cut"
  | "runner link cut"
  | "server stopped"
  | "runner stopped"
  | "agent stopped"
  | "disk full";

export interface FaultParts {
  readonly world: World;
  readonly random: () => number;
  readonly clients: () => readonly Client[];
  /** Agents that live, by pid. */
  readonly agents: () => readonly number[];
  /** Something that did not happen in its time. */
  readonly stuck: (what: string) => void;
}

type Fault = (parts: FaultParts) => Promise<void>;

/** A drained server is gone within this time (contract 6, docs/reliability.md). */
const DRAIN_MS = 10_000;

const anyOf = <T>(items: readonly T[], random: () => number): T | undefined =>
  items[Math.floor(random() * items.length)];

function signal(pid: number | undefined, name: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(pid, name);
  } catch {
    // It has ended by itself in between.
  }
}

/** Stopped processes are a fault of some length, which is the fault itself and waits for nothing. */
async function freeze(pid: number | undefined, random: () => number): Promise<void> {
  signal(pid, "SIGSTOP");
  await delay(20 + random() * 400);
  signal(pid, "SIGCONT");
}

async function drain({ world, stuck }: FaultParts): Promise<void> {
  const beganMs = performance.now();
  const code = await world.end("SIGTERM");
  const tookMs = performance.now() - beganMs;
  if (tookMs > DRAIN_MS) stuck(`a drained server took ${Math.round(tookMs)} ms to end`);
  if (code !== 0) stuck(`a drained server ended with exit code ${code}; it said: ${world.said()}`);
  await world.start();
}

const FAULTS: readonly (readonly [weight: number, name: FaultName, fault: Fault])[] = [
  [
    5,
    "server killed",
    async ({ world }) => {
      await world.end("SIGKILL");
      await world.start();
    },
  ],
  [2, "server drained", drain],
  [2, "runner killed", async ({ world }) => world.killRunner()],
  [
    4,
    "runner link cut",
    async ({ world, clients, random }) => void (world.cutRunner() || anyOf(clients(), random)?.cut()),
  ],
  [4, "agent killed", async ({ agents, random }) => signal(anyOf(agents(), random), "SIGKILL")],
  [6, "link cut", async ({ clients, random }) => anyOf(clients(), random)?.cut()],
  [1, "server stopped", ({ world, random }) => freeze(world.serverPid(), random)],
  [1, "runner stopped", ({ world, random }) => freeze(world.runnerPid(), random)],
  [2, "agent stopped", ({ agents, random }) => freeze(anyOf(agents(), random), random)],
  [
    1,
    "disk full",
    async ({ world, random }) => {
      if (world.disk.kind === "never full") return;
      const pid = world.serverPid();
      world.disk.fill(pid);
      await delay(100 + random() * 300);
      // A session whose log could not be written goes on with the next server.
      await world.end("SIGKILL");
      world.disk.free(pid);
      await world.start();
    },
  ],
];

const TOTAL = FAULTS.reduce((sum, [weight]) => sum + weight, 0);

/** One fault, chosen by its weight. Resolves with its name when it has been done. */
export async function doFault(parts: FaultParts): Promise<FaultName> {
  let left = parts.random() * TOTAL;
  for (const [weight, name, fault] of FAULTS) {
    left -= weight;
    if (left >= 0) continue;
    await fault(parts);
    return name;
  }
  return "link cut";
}
