import type { SessionHistory } from "./history.ts";
import { word } from "./json.ts";
import { reporter, type Violation } from "./violation.ts";

/** Each turn ends exactly once, nothing of the agent's belongs to it afterwards, and when all is over the session does one more. */
export function turnViolations({ id, log, probe }: SessionHistory): Violation[] {
  const { found, report } = reporter(id);
  const turns = new Set<string>();
  const ended = new Map<string, number>();
  let probed = false;
  for (const sight of log) {
    const turn = sight.turn_id ?? word(sight.fact, "turn_id");
    if (turn === "") continue;
    if (sight.event_type === "query" || sight.event_type === "turn.started" || sight.event_type === "turn.queued") {
      turns.add(turn);
    }
    const end = ended.get(turn);
    if (sight.event_type === "turn.completed" || sight.event_type === "turn.failed") {
      if (end !== undefined) report("turn ended twice", `${turn} at ${end} and ${sight.seq}`);
      ended.set(turn, sight.seq);
      probed ||= turn === probe && sight.event_type === "turn.completed";
    } else if (end !== undefined && sight.origin === "AGENT_EVENT") {
      report("event after its turn", `${sight.seq} (${sight.event_type}) belongs to ${turn}, which ended at ${end}`);
    }
  }
  for (const turn of turns) if (!ended.has(turn)) report("turn without end", turn);
  if (!probed) report("no further turn", `${probe} did not complete`);
  return found;
}
