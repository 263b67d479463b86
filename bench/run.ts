/** `npm run bench`: the same events through a bare pipe and socket, a naive relay, and ours, in one run. See docs/performance.md. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buildAgent } from "./agent.ts";
import { type CellPlan, type Measurement, measureCell } from "./cell.ts";
import { CONTENDERS, type Setup } from "./contenders.ts";
import { type Corpus, writeCorpus } from "./corpus.ts";
import { describeMachine } from "./machine.ts";
import { type BenchOptions, HELP, parseOptions } from "./options.ts";
import { type Program, startProgram } from "./program.ts";
import { formatReport, type Report, rowsOf } from "./report.ts";
import { shuffled } from "./statistics.ts";

/** With many viewers an event costs more, and with the naive relay much more: fewer of them take as long. */
const FEWER_WITH_MANY = 10;
const FEWER_WITH_MANY_NAIVE = 50;

function planCells({ events, only, viewers: numbers }: BenchOptions): CellPlan[] {
  const contenders = CONTENDERS.filter(({ name }) => only === undefined || name === only);
  if (contenders.length === 0) throw new Error(`--only ${only}: there is no such contender.`);
  return numbers.flatMap((viewers) =>
    contenders.map((contender) => {
      const fewer = viewers === 1 ? 1 : contender.name === "naive" ? FEWER_WITH_MANY_NAIVE : FEWER_WITH_MANY;
      const count = Math.ceil(events / fewer);
      return { contender, viewers, events: count, warmUpEvents: Math.ceil(count / 2) };
    }),
  );
}

async function runRounds(
  options: BenchOptions,
  setup: Setup,
  corpus: Corpus,
  viewers: Program,
): Promise<Measurement[][]> {
  const rounds: Measurement[][] = [];
  const beganMs = performance.now();
  const wouldFit = (): boolean => {
    const spentMs = performance.now() - beganMs;
    return spentMs + spentMs / Math.max(1, rounds.length) <= options.budgetMs;
  };
  for (let round = 1; round <= options.rounds && (round === 1 || wouldFit()); round++) {
    const measured: Measurement[] = [];
    for (const plan of shuffled(planCells(options))) {
      const cell = await measureCell(plan, setup, corpus, viewers);
      measured.push(cell);
      process.stderr.write(
        `round ${round}/${options.rounds}: ${cell.contender}, ${cell.viewers} viewers: ${cell.cpuMicrosPerEvent.toFixed(2)} µs an event\n`,
      );
    }
    rounds.push(measured);
  }
  return rounds;
}

async function bench(options: BenchOptions, dir: string): Promise<Report> {
  const startedMs = performance.now();
  const machine = describeMachine();
  const agent = buildAgent(dir);
  const corpus = writeCorpus(join(dir, "corpus.ndjson"), options);
  const setup: Setup = {
    dir,
    agent: agent.path,
    corpusPath: corpus.path,
    write: options.blocks ? "block" : "line",
    profileDir: options.profileDir === undefined ? undefined : resolve(options.profileDir),
  };
  const viewers = await startProgram("viewers.ts", {});
  let measurements: Measurement[][];
  try {
    measurements = await runRounds(options, setup, corpus, viewers);
  } finally {
    await viewers.close();
  }
  return {
    patchbay: String(JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version),
    machine,
    loadAfter: loadavg(),
    agent: agent.kind,
    corpus: { lines: corpus.lines, meanBytes: corpus.meanBytes },
    rounds: measurements.length,
    seconds: (performance.now() - startedMs) / 1000,
    rows: rowsOf(measurements),
    measurements,
  };
}

async function main(): Promise<void> {
  const options = parseOptions(process.argv.slice(2));
  if (options === "help") {
    process.stdout.write(HELP);
    return;
  }
  const dir = mkdtempSync(join(tmpdir(), "patchbay-bench-"));
  try {
    const report = await bench(options, dir);
    process.stdout.write(options.json ? `${JSON.stringify(report)}\n` : formatReport(report));
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

await main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
