import type { Sent, SessionHistory, Sight } from "./history.ts";
import { word } from "./json.ts";
import { reporter, type Violation } from "./violation.ts";

type Report = ReturnType<typeof reporter>["report"];

/** Promise 3: an acknowledged command is there, once, as it was sent, and ends; a refused one is not. */
export function commandViolations(session: SessionHistory): Violation[] {
  const { found, report } = reporter(session.id);
  const applied = new Map<string, Sight[]>();
  for (const sight of session.log) {
    if (sight.origin !== "USER_EVENT" || sight.command_id === undefined) continue;
    applied.set(sight.command_id, [...(applied.get(sight.command_id) ?? []), sight]);
  }
  const end = endsOf(session);
  for (const sent of session.sent) {
    const events = applied.get(sent.id) ?? [];
    const what = `${sent.event_type} ${sent.id}`;
    if (events.length > 1) report("command applied twice", `${what} at ${events.map(({ seq }) => seq).join(", ")}`);
    if (new Set(sent.acks).size > 1) report("command moved", `${what} was acknowledged at ${sent.acks.join(", ")}`);
    const [event] = events;
    if (event === undefined) {
      if (sent.acks.length > 0) report("command lost", `${what}, acknowledged at ${sent.acks[0]}`);
      continue;
    }
    if (sent.acks.some((seq) => seq !== event.seq))
      report("command moved", `${what} is at ${event.seq}, not ${sent.acks}`);
    if (sent.acks.length === 0 && sent.refusals.length > 0) {
      report("refused command applied", `${what} (${sent.refusals.join(", ")}) at ${event.seq}`);
    }
    checkContent(sent, event, report);
    if (!end(sent)) report("command without end", what);
  }
  if (session.told === undefined) checkGiven(session, report);
  return found;
}

function checkContent(sent: Sent, event: Sight, report: Report): void {
  const { fact } = event;
  if (event.event_type !== sent.event_type) report("command changed", `${sent.id} became a ${event.event_type}`);
  if (fact === undefined || sent.event_type !== "query") return;
  const content = word(fact, "message", "content");
  if (content !== sent.text) report("command changed", `${sent.id} says ${content.slice(0, 60)}`);
  if (word(fact, "uuid") !== sent.names) report("command changed", `${sent.id} has the uuid ${word(fact, "uuid")}`);
}

/** Whether the log has the effect of a command, or an event that names it. */
function endsOf({ log }: SessionHistory): (sent: Sent) => boolean {
  const turns = new Set<string>();
  const answered = new Set<string>();
  const resolved = new Set<string>();
  for (const { event_type, turn_id, command_id, fact } of log) {
    if (event_type === "turn.completed" || event_type === "turn.failed") turns.add(turn_id ?? word(fact, "turn_id"));
    if (event_type === "control_response" && command_id !== undefined) answered.add(command_id);
    if (event_type === "request.resolved") resolved.add(word(fact, "request_id"));
  }
  // The command itself is a control_response with its own id too: only a query and a control_request are ended by another event.
  return ({ event_type, id, names }) => {
    if (event_type === "query") return turns.has(names);
    return event_type === "control_request" ? answered.has(id) : resolved.has(names);
  };
}

/** A turn cannot have come to a good end when its message was given to nobody. */
function checkGiven({ log, journals, sent }: SessionHistory, report: Report): void {
  const given = new Set<string>();
  for (const { dir, type, uuid } of journals.flatMap((journal) => journal.records)) {
    if (dir === "in" && type === "user" && uuid !== undefined) given.add(uuid);
  }
  const own = new Set(sent.map((one) => one.names));
  for (const { event_type, turn_id = "", fact } of log) {
    if (event_type !== "turn.completed" || word(fact, "stop_reason") !== "end_turn" || !own.has(turn_id)) continue;
    if (!given.has(turn_id)) report("message not given", `${turn_id} completed, and no agent ever had it`);
  }
}
