import type { Measurement } from "./cell.ts";
import type { Machine } from "./machine.ts";
import { median, type Spread, spreadOf } from "./statistics.ts";

/** One contender with so many viewers, over all rounds. Ratios are made within each round. */
export interface Row {
  readonly contender: string;
  readonly viewers: number;
  readonly events: number;
  readonly eventsPerSecond: number;
  readonly cpuMicrosPerEvent: Spread | undefined;
  readonly mainMicrosPerEvent: number;
  readonly agentMicrosPerEvent: number | undefined;
  readonly viewersMicrosPerEvent: number;
  /** Undefined when the other was not measured. */
  readonly toFloor: Spread | undefined;
  readonly toNaive: Spread | undefined;
  readonly deliveredShare: number;
  readonly maxRssBytes: number;
  readonly foreignShare: number | undefined;
}

export interface Report {
  readonly patchbay: string;
  readonly machine: Machine;
  readonly loadAfter: readonly number[];
  readonly agent: string;
  readonly corpus: { readonly lines: number; readonly meanBytes: number };
  readonly rounds: number;
  readonly seconds: number;
  readonly rows: readonly Row[];
  readonly measurements: readonly (readonly Measurement[])[];
}

/** Makes a row of each cell out of all rounds' measurements. */
export function rowsOf(rounds: readonly (readonly Measurement[])[]): Row[] {
  const cells = (rounds[0] ?? []).map(({ contender, viewers }) => ({ contender, viewers }));
  const order = ["floor", "naive", "ours"];
  cells.sort((a, b) => a.viewers - b.viewers || order.indexOf(a.contender) - order.indexOf(b.contender));
  return cells.map(({ contender, viewers }) => rowOf(rounds, contender, viewers));
}

function rowOf(rounds: readonly (readonly Measurement[])[], contender: string, viewers: number): Row {
  const find = (round: readonly Measurement[], name: string): Measurement[] =>
    round.filter((cell) => cell.contender === name && cell.viewers === viewers);
  const cells = rounds.flatMap((round) => find(round, contender));
  const ratioTo = (name: string): Spread | undefined =>
    spreadOf(
      rounds.flatMap((round) => {
        const [mine] = find(round, contender);
        const [other] = find(round, name);
        return mine && other ? [mine.cpuMicrosPerEvent / other.cpuMicrosPerEvent] : [];
      }),
    );
  const medianOf = (pick: (cell: Measurement) => number | undefined): number =>
    median(cells.flatMap((cell) => pick(cell) ?? []));
  const maybe = (value: number): number | undefined => (Number.isNaN(value) ? undefined : value);
  return {
    contender,
    viewers,
    events: cells[0]?.events ?? 0,
    eventsPerSecond: medianOf((cell) => (cell.events * cell.deliveredShare * 1000) / cell.wallMs),
    cpuMicrosPerEvent: spreadOf(cells.map((cell) => cell.cpuMicrosPerEvent)),
    mainMicrosPerEvent: medianOf((cell) => cell.mainMicrosPerEvent),
    agentMicrosPerEvent: maybe(medianOf((cell) => cell.agentMicrosPerEvent)),
    viewersMicrosPerEvent: medianOf((cell) => cell.viewersMicrosPerEvent),
    toFloor: ratioTo("floor"),
    toNaive: ratioTo("naive"),
    deliveredShare: medianOf((cell) => cell.deliveredShare),
    maxRssBytes: Math.max(...cells.map((cell) => cell.maxRssBytes)),
    foreignShare: maybe(medianOf((cell) => cell.foreignShare)),
  };
}

const fixed = (value: number | undefined): string =>
  value === undefined ? "–" : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
const percent = (share: number): string => `${(share * 100).toFixed(share < 0.9995 && share > 0.99 ? 1 : 0)} %`;
const whole = (value: number): string => Math.round(value).toLocaleString("en-US");
const load = (averages: readonly number[]): string => averages.map((value) => value.toFixed(2)).join(" ");

const COLUMNS: readonly (readonly [title: string, cell: (row: Row) => string])[] = [
  ["", (row) => row.contender],
  ["viewers", (row) => String(row.viewers)],
  ["events/s", (row) => whole(row.eventsPerSecond)],
  ["CPU µs/event", (row) => fixed(row.cpuMicrosPerEvent?.median)],
  ["least–most", (row) => `${fixed(row.cpuMicrosPerEvent?.least)}–${fixed(row.cpuMicrosPerEvent?.most)}`],
  ["× floor", (row) => fixed(row.toFloor?.median)],
  ["× naive", (row) => fixed(row.toNaive?.median)],
  ["main thread", (row) => fixed(row.mainMicrosPerEvent)],
  ["agent", (row) => fixed(row.agentMicrosPerEvent)],
  ["viewers' CPU", (row) => fixed(row.viewersMicrosPerEvent)],
  ["delivered", (row) => percent(row.deliveredShare)],
  ["RSS MB", (row) => whole(row.maxRssBytes / 2 ** 20)],
  ["foreign CPU", (row) => (row.foreignShare === undefined ? "–" : percent(row.foreignShare))],
];

function table(rows: readonly Row[]): string {
  const lines = [COLUMNS.map(([title]) => title), ...rows.map((row) => COLUMNS.map(([, cell]) => cell(row)))];
  const widths = COLUMNS.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const shown = lines.map(
    (line) => `| ${line.map((text, column) => text.padStart(widths[column] ?? 0)).join(" | ")} |`,
  );
  const rule = `|${widths.map((width) => "-".repeat(width + 1)).join(":|")}:|`;
  return [shown[0], rule, ...shown.slice(1)].join("\n");
}

/** The report as text: facts, then one table in Markdown, fit for docs/performance.md. */
export function formatReport(report: Report): string {
  const { machine, corpus } = report;
  return `patchbay ${report.patchbay} · Node ${machine.node} · SQLite ${machine.sqlite} · ${machine.system}
${machine.cores} cores of ${machine.cpu}, ${machine.memoryGib} GiB · load ${load(machine.load)} before, ${load(report.loadAfter)} after
agent: ${report.agent} · corpus: ${corpus.lines} lines, mean ${Math.round(corpus.meanBytes)} bytes · ${report.rounds} rounds in ${Math.round(report.seconds)} s

${table(report.rows)}

Medians of the rounds; ratios are made within a round. CPU is the server process's (user + system, all threads), for each event.
`;
}
