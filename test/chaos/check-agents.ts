import type { Journal, JournalRecord, SessionHistory, Sight } from "./history.ts";
import { reporter, type Violation } from "./violation.ts";

type Report = ReturnType<typeof reporter>["report"];

/** What the agents wrote down themselves: their lines reach the log whole and in order, one process after the other, and nothing is given to them twice. */
export function agentViolations(session: SessionHistory, killedRunners: ReadonlySet<number>): Violation[] {
  const { found, report } = reporter(session.id);
  const journals = session.journals.toSorted((one, other) => one.startedAt - other.startedAt);
  checkOneAtATime(journals, report);
  checkLines({ ...session, journals }, killedRunners, report);
  checkMessages(journals, report);
  checkAnswers(journals, report);
  return found;
}

function checkOneAtATime(journals: readonly Journal[], report: Report): void {
  for (const [index, journal] of journals.entries()) {
    for (const other of journal.others) report("two agents", `process ${other} lived when ${journal.pid} began`);
    const next = journals[index + 1];
    const last = journal.records.at(-1);
    if (next === undefined || last === undefined || last.at < next.startedAt) continue;
    const late = (last.at - next.startedAt).toFixed(1);
    report("two agents", `process ${journal.pid} did ${last.dir} ${last.type} ${late} ms after ${next.pid} had begun`);
  }
}

/** A line that a process was about to print, in the order of all processes. */
interface Line extends JournalRecord {
  readonly journal: Journal;
  /** Need not be seen: a preview, or the answer to something that the broker asked by itself. */
  readonly optional: boolean;
  /** The last one that its process wrote down: it may have died before it had printed it. */
  readonly isLast: boolean;
}

function linesOf(session: SessionHistory): Line[] {
  const clientRequests = new Set(session.sent.map((sent) => sent.names));
  return session.journals.flatMap((journal) => {
    const own = new Set(
      journal.records
        .filter(({ dir, type, request_id }) => dir === "in" && type === "control_request" && request_id !== undefined)
        .map(({ request_id }) => request_id)
        .filter((id) => id !== undefined && !clientRequests.has(id)),
    );
    const out = journal.records.filter((record) => record.dir === "out");
    return out.map((record) => ({
      ...record,
      journal,
      optional: record.type === "stream_event" || (record.type === "control_response" && own.has(record.request_id)),
      isLast: record === out.at(-1),
    }));
  });
}

function checkLines(session: SessionHistory, killedRunners: ReadonlySet<number>, report: Report): void {
  const lines = linesOf(session);
  const places = new Map<string, number[]>();
  for (const [index, line] of lines.entries()) {
    const known = places.get(line.body);
    if (known === undefined) places.set(line.body, [index]);
    else known.push(index);
  }
  let next = 0;
  const skipTo = (end: number, before: string): void => {
    for (; next < end; next += 1) {
      const line = lines[next];
      if (line === undefined || line.optional || line.isLast || killedRunners.has(line.journal.runner)) continue;
      report(
        "agent line lost",
        `${line.type} ${line.body.slice(0, 8)} of process ${line.journal.pid}, before ${before}`,
      );
    }
  };
  for (const sight of agentSights(session)) {
    const where = places.get(sight.body);
    const place = where?.find((index) => index >= next);
    if (place !== undefined) {
      skipTo(place, String(sight.seq));
      next = place + 1;
    } else if (where === undefined) {
      report(
        "agent line unknown",
        `${sight.seq} (${sight.event_type} ${sight.body.slice(0, 8)}) was printed by no agent`,
      );
    } else {
      report("agent line moved", `${sight.seq} (${sight.event_type}) stands behind a later line, or came again`);
    }
  }
  skipTo(lines.length, "the end");
}

/** All lines of agents that anybody saw, by number. */
function agentSights(session: SessionHistory): Sight[] {
  const sights = new Map<number, Sight>();
  const seen = [...session.readers.flatMap((reader) => reader.visits.flatMap((visit) => visit.sights)), ...session.log];
  for (const sight of seen) {
    if (sight.origin === "AGENT_EVENT" && sight.source === "agent") sights.set(sight.seq, sight);
  }
  return [...sights.values()].sort((one, other) => one.seq - other.seq);
}

/** A user message goes to a second process only if the first, which is dead, had not taken it. */
function checkMessages(journals: readonly Journal[], report: Report): void {
  const given = new Map<string, number>();
  const taken = new Map<string, number>();
  for (const { pid, records } of journals) {
    for (const { dir, type, uuid } of records) {
      if (uuid === undefined) continue;
      if (dir === "took") taken.set(uuid, pid);
      if (dir !== "in" || type !== "user") continue;
      if (given.get(uuid) === pid) report("message given twice", `${uuid} came twice to process ${pid}`);
      const owner = taken.get(uuid);
      if (owner !== undefined) report("message given twice", `${uuid} was taken by ${owner}, and came to ${pid}`);
      given.set(uuid, pid);
    }
  }
}

function checkAnswers(journals: readonly Journal[], report: Report): void {
  const given = new Map<string, number>();
  for (const { pid, records } of journals) {
    for (const { dir, type, request_id } of records) {
      if (dir !== "in" || type !== "control_response" || request_id === undefined) continue;
      const before = given.get(request_id);
      if (before !== undefined) report("answer given twice", `${request_id} to ${before} and ${pid}`);
      given.set(request_id, pid);
    }
  }
}
