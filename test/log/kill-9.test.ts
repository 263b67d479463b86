import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { openStore } from "../../src/store/sqlite.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const ROUNDS = 50;
/** Directories written side by side, to use both cores of a small machine. */
const LANES = 2;

const SCRIPT = fileURLToPath(new URL("../kit/killed-writer.ts", import.meta.url));

/** What killed processes had promised, over all rounds of their directory. */
interface Promised {
  /** Content by number, of the last process to use the number. */
  readonly made: Map<number, string>;
  readonly acknowledged: Set<number>;
  readonly shown: Set<number>;
  /** Found in the log by a later process. */
  readonly kept: Set<number>;
  keptUpTo: number;
}

interface Lane {
  readonly dataDir: string;
  /** Makes starts cheaper: fifty processes load the same sources. */
  readonly compileCache: string;
  readonly promised: Promised;
}

function start(lane: Lane, mode: string) {
  const args = [SCRIPT, lane.dataDir, mode, String(lane.promised.keptUpTo)];
  const env = { ...process.env, NODE_COMPILE_CACHE: lane.compileCache };
  return spawn(process.execPath, args, { env, stdio: ["ignore", "pipe", "inherit"] });
}

/** Starts a writer, kills it so many lines after it opened the log, and takes down all that it had said until then. */
async function killWriter(lane: Lane, afterLines: number): Promise<void> {
  const child = start(lane, "write");
  const exited = once(child, "exit");
  let lines = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    takeDown(line, lane.promised);
    if (lines > 0 || line.startsWith("open")) lines += 1;
    if (lines === afterLines) child.kill("SIGKILL");
  }
  const [, signal] = await exited;
  expect(signal).toBe("SIGKILL");
}

function takeDown(line: string, promised: Promised): void {
  const [word, number, content = ""] = line.split(" ");
  const at = Number(number);
  const { made, acknowledged, shown, kept } = promised;
  switch (word) {
    case "kept":
      expect(at).toBeGreaterThan(promised.keptUpTo);
      expect(content).toBe(made.get(at));
      expect(content).toMatch(/^d/);
      kept.add(at);
      promised.keptUpTo = at;
      return;
    case "open":
      expect([...acknowledged].filter((one) => !kept.has(one))).toEqual([]);
      expect(at).toBeGreaterThanOrEqual(Math.max(promised.keptUpTo, ...shown));
      return;
    case "made":
      // A number that nobody was shown and that was not kept may be given again.
      expect(shown.has(at) || kept.has(at) || acknowledged.has(at)).toBe(false);
      made.set(at, content);
      return;
    case "ack":
      acknowledged.add(at);
      return;
    case "shown":
      shown.add(at);
      return;
    default:
      throw new Error(`what is "${line}"?`);
  }
}

async function runLane(rounds: number): Promise<Promised> {
  using folder = makeTempDir();
  const promised: Promised = {
    made: new Map(),
    acknowledged: new Set(),
    shown: new Set(),
    kept: new Set(),
    keptUpTo: 0,
  };
  const lane: Lane = { dataDir: join(folder.path, "data"), compileCache: join(folder.path, "cache"), promised };
  await once(start(lane, "once"), "exit");
  for (let round = 0; round < rounds; round += 1) await killWriter(lane, 2 + Math.floor(Math.random() * 250));

  const store = await openStore({ dataDir: lane.dataDir });
  const rows = await store.read("SELECT seq FROM events ORDER BY seq");
  const there = new Set(rows.map((row) => Number(row["seq"])));
  await store.close();
  expect([...promised.acknowledged, ...promised.kept].filter((number) => !there.has(number))).toEqual([]);
  return promised;
}

verifies(
  "LOG-KILL9",
  `${ROUNDS} kills of a writing process: what was acknowledged is there, in order, and no number that was shown is used again`,
  async () => {
    const lanes = await Promise.all(Array.from({ length: LANES }, () => runLane(ROUNDS / LANES)));
    for (const { acknowledged, shown } of lanes)
      expect(Math.min(acknowledged.size, shown.size)).toBeGreaterThan(ROUNDS);
  },
  240_000,
);
