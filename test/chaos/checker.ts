import { agentViolations } from "./check-agents.ts";
import { commandViolations } from "./check-commands.ts";
import { modelViolations } from "./check-model.ts";
import { readerViolations } from "./check-readers.ts";
import { turnViolations } from "./check-turns.ts";
import type { History } from "./history.ts";
import type { Violation } from "./violation.ts";

/**
 * Holds what clients saw and agents received against what Patchbay promises (contract 6). Knows nothing of how the product works:
 * no line of src/ is imported here or below.
 */
export function check(history: History): Violation[] {
  const found = history.sessions.flatMap((session) => [
    ...readerViolations(session),
    ...(session.told === undefined
      ? agentViolations(session, new Set(history.killedRunners))
      : modelViolations(session, session.told)),
    ...commandViolations(session),
    ...turnViolations(session),
  ]);
  return [
    ...found,
    ...history.leftBehind.map((detail): Violation => ({ kind: "left behind", session: "", detail })),
    ...history.stuck.map((detail): Violation => ({ kind: "stuck", session: "", detail })),
  ];
}
