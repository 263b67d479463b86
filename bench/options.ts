import { parseArgs } from "node:util";

export interface BenchOptions {
  /** Corpus lines of a measured turn with one viewer; with many viewers fewer, as planCells says. */
  readonly events: number;
  readonly rounds: number;
  readonly json: boolean;
  /** The corpus has lines of a megabyte. */
  readonly big: boolean;
  /** The agent writes blocks of 64 KiB instead of a line for each write. */
  readonly blocks: boolean;
  readonly profileDir: string | undefined;
  /** Measure this contender only. */
  readonly only: string | undefined;
  /** Numbers of viewers to measure with. */
  readonly viewers: readonly number[];
  /** No further round is begun that would end later than this. */
  readonly budgetMs: number;
}

const QUICK_BUDGET_MS = 50_000;

export const HELP = `npm run bench -- [options]
  --quick        under a minute: fewer events, and as many rounds as fit
  --events N     lines of a measured turn with one viewer (200000; quick 30000)
  --rounds N     rounds, of which medians are shown (7; quick 3)
  --json         one JSON object on stdout instead of the tables
  --big          a corpus with lines of a megabyte
  --blocks       the agent writes 64 KiB blocks instead of single lines
  --viewers LIST numbers of viewers (1,100)
  --only NAME    one contender: floor, naive or ours (for profiles; the ratios need all)
  --profile DIR  CPU profiles of the servers' main threads, measured turns only (read them with bench/hot.ts)
`;

/** @throws Error naming what is wrong */
export function parseOptions(args: readonly string[]): BenchOptions | "help" {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      events: { type: "string" },
      rounds: { type: "string" },
      json: { type: "boolean", default: false },
      big: { type: "boolean", default: false },
      blocks: { type: "boolean", default: false },
      profile: { type: "string" },
      only: { type: "string" },
      viewers: { type: "string", default: "1,100" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  return {
    events: countOf("--events", values.events) ?? (values.quick ? 30_000 : 200_000),
    rounds: countOf("--rounds", values.rounds) ?? (values.quick ? 3 : 7),
    json: values.json,
    big: values.big,
    blocks: values.blocks,
    profileDir: values.profile,
    only: values.only,
    viewers: values.viewers.split(",").map((text) => countOf("--viewers", text) ?? 1),
    budgetMs: values.quick ? QUICK_BUDGET_MS : Number.POSITIVE_INFINITY,
  };
}

function countOf(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[1-9]\d{0,7}$/.test(text)) throw new Error(`${flag} needs a whole number above 0, not ${text}.`);
  return Number(text);
}
