/**
 * `npm run chaos -- --minutes N [--seed S] [--sessions K] [--inline | --dialled] [--real]`: faults against a real server, in rounds of at most a minute, each
 * with a seed of its own (the one before plus 1), until the time is over or the checker finds something (docs/reliability.md). Counts go
 * to stdout, each fault as it happens to stderr. `--real` takes the real CLIs (both versions in turn) with a scripted model, which are slower. Exits with 1 when there was a violation.
 */
import { randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import { type ChaosReport, runChaos } from "../test/chaos/run.ts";
import { CLI_VERSIONS } from "../test/demo/cli.ts";

const ROUND_S = 60;

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "1" },
    seed: { type: "string" },
    sessions: { type: "string", default: "6" },
    inline: { type: "boolean", default: false },
    dialled: { type: "boolean", default: false },
    real: { type: "boolean", default: false },
  },
});

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) throw new Error(`--${name} must be a number above 0`);
  return value;
}

const minutes = whole("minutes", values.minutes);
const sessions = whole("sessions", values.sessions);
const firstSeed = values.seed === undefined ? randomInt(1, 1_000_000_000) : whole("seed", values.seed);

const mode = values.dialled ? "dialled" : values.inline ? "inline" : "auto";

const totals = { rounds: 0, faults: 0, events: 0, commands: 0, agents: 0 };

/** The report of one round. True when nothing was violated. */
function print(report: ChaosReport): boolean {
  const faults = [...report.faults].map(([name, count]) => `${name} ${count}`).join(", ");
  const total = [...report.faults.values()].reduce((sum, count) => sum + count, 0);
  console.log(`seed ${report.seed}: ${total} faults (${faults}); disk: ${report.disk}`);
  console.log(`${report.events} durable events, ${report.commands} commands, ${report.agents} agent processes`);
  for (const { kind, session, detail } of report.violations) console.log(`VIOLATION ${kind} ${session}: ${detail}`);
  console.log(`${report.violations.length} violations`);
  totals.rounds += 1;
  totals.faults += total;
  totals.events += report.events;
  totals.commands += report.commands;
  totals.agents += report.agents;
  return report.violations.length === 0;
}

function printTotals(passed: boolean): void {
  const { rounds, faults, events, commands, agents } = totals;
  const end = passed ? "no violation" : "stopped at a violation";
  console.log(
    `${rounds} rounds from seed ${firstSeed}: ${faults} faults, ${events} durable events, ${commands} commands, ${agents} agent processes, ${end}`,
  );
}

async function main(): Promise<boolean> {
  const endS = performance.now() / 1000 + minutes * 60;
  for (let seed = firstSeed; ; seed += 1) {
    // Peace and the check come on top: a rest of a few seconds is no round.
    const leftS = endS - performance.now() / 1000;
    if (seed > firstSeed && leftS < 5) return true;
    const roundS = Math.min(ROUND_S, leftS);
    console.log(`round with --seed ${seed}, ${Math.round(roundS)} s of faults`);
    const report = await runChaos({
      seed,
      sessions,
      mode,
      ...(values.real && { claude: CLI_VERSIONS[seed % 2 === 0 ? 0 : 1].path }),
      durationMs: roundS * 1000,
      progress: (line) => console.error(line),
    });
    if (print(report)) continue;
    const rest = `--sessions ${sessions}${mode === "auto" ? "" : ` --${mode}`}${values.real ? " --real" : ""}`;
    console.log(`again: npm run chaos -- --minutes ${(roundS / 60).toFixed(1)} --seed ${seed} ${rest}`);
    return false;
  }
}

const passed = await main();
printTotals(passed);
process.exitCode = passed ? 0 : 1;
