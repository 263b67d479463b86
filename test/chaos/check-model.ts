import type { SessionHistory } from "./history.ts";
import { word } from "./json.ts";
import { reporter, type Violation } from "./violation.ts";

/** What the model of a real CLI was told: each user message at most once in a conversation, and each that came to a good end at all. */
export function modelViolations(session: SessionHistory, told: readonly string[]): Violation[] {
  const { found, report } = reporter(session.id);
  const queries = session.sent.filter(({ event_type }) => event_type === "query");
  for (const { names } of queries) {
    const most = Math.max(0, ...told.map((request) => request.split(names).length - 1));
    if (most > 1) report("message given twice", `${names} is ${most} times in one request of the model`);
  }
  const completed = new Set(
    session.log
      .filter(({ event_type, fact }) => event_type === "turn.completed" && word(fact, "stop_reason") === "end_turn")
      .map(({ turn_id }) => turn_id),
  );
  for (const { names } of queries) {
    if (!completed.has(names) || told.some((request) => request.includes(names))) continue;
    report("message not given", `${names} completed, and the model was never told it`);
  }
  return found;
}
