import { type Reader, type SessionHistory, type Sight, sameSight } from "./history.ts";
import { reporter, type Violation } from "./violation.ts";

/** Promises 1, 2 and 4 as readers see them: order, each number once and with one content, nothing durable missing. */
export function readerViolations(session: SessionHistory): Violation[] {
  const { found, report } = reporter(session.id);
  const known = new Map<number, Sight>();
  const durable = session.log.filter((sight) => !sight.preview).map((sight) => sight.seq);
  const stored = new Set(durable);
  const log: Reader = { name: "the log at the end", visits: [{ after: 0, sights: [...session.log] }], complaints: [] };
  for (const reader of [log, ...session.readers]) {
    for (const complaint of reader.complaints) report("complaint", `${reader.name}: ${complaint}`);
    for (const sight of reader.visits.flatMap((visit) => visit.sights)) {
      const before = known.get(sight.seq) ?? sight;
      known.set(sight.seq, before);
      if (!sameSight(before, sight)) {
        report("number reused", `${reader.name}: ${sight.seq} was ${nameOf(before)} and is ${nameOf(sight)}`);
      }
      if (!sight.preview && !stored.has(sight.seq)) {
        report("not durable", `${reader.name} was shown ${sight.seq} (${nameOf(sight)}), the log does not have it`);
      }
    }
    orderOf(reader, report);
    for (const seq of missing(reader, durable)) {
      report("event lost", `${reader.name} never saw ${seq} (${nameOf(known.get(seq))})`);
    }
  }
  return found;
}

const nameOf = (sight: Sight | undefined): string =>
  sight === undefined ? "?" : `${sight.event_type}${sight.preview ? " preview" : ""} ${sight.body.slice(0, 8)}`;

function orderOf(reader: Reader, report: ReturnType<typeof reporter>["report"]): void {
  const seen = new Set<number>();
  for (const visit of reader.visits) {
    let last = visit.after;
    for (const sight of visit.sights) {
      if (seen.has(sight.seq)) report("seen twice", `${reader.name}: ${sight.seq} (${nameOf(sight)})`);
      else if (sight.seq <= last) report("out of order", `${reader.name}: ${sight.seq} after ${last}`);
      seen.add(sight.seq);
      last = Math.max(last, sight.seq);
    }
  }
}

/** Durable numbers between the cursor that the reader began with and the last event it saw, which it did not see. */
function missing(reader: Reader, durable: readonly number[]): number[] {
  const sights = reader.visits.flatMap((visit) => visit.sights);
  const first = reader.visits[0]?.after ?? 0;
  const last = sights.reduce((highest, sight) => Math.max(highest, sight.seq), 0);
  const seen = new Set(sights.map((sight) => sight.seq));
  return durable.filter((seq) => seq > first && seq <= last && !seen.has(seq));
}
