import type { AgentLines, SessionEvent } from "./events.ts";

/** How a turn ended. */
export interface TurnOutcome {
  readonly turnId: string;
  readonly outcome: "completed" | "failed";
  /** stop_reason of `turn.completed`, or reason of `turn.failed`. */
  readonly reason: string;
  /** The CLI's `result` line; absent when the agent died or the turn never ran. */
  readonly result: AgentLines["result"] | undefined;
  /** What the agent said at the end: the result's text, else its last message, else what was seen of one that was cut off. */
  readonly text: string;
}

/** Looks at a session's events until one turn has ended. */
export interface TurnWatch {
  /** The outcome, with the event that completes it. */
  push(event: SessionEvent): TurnOutcome | undefined;
}

interface Seen {
  result?: AgentLines["result"];
  text?: string;
  end?: { readonly outcome: "completed" | "failed"; readonly reason: string; readonly foldedInto?: string };
}

/** The text of an assistant line's text blocks. */
function textOf(line: AgentLines["assistant"]): string {
  return line.message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
}

/**
 * A message that was folded into a running turn ends with `folded_into`: its result is that turn's. So every turn is noted, not only
 * the one that is waited for; ends and results may come in any order between the two.
 */
export function createTurnWatch(turnId: string): TurnWatch {
  const turns = new Map<string, Seen>();

  function note(id: string | undefined): Seen {
    if (id === undefined) return {};
    const known = turns.get(id) ?? {};
    turns.set(id, known);
    return known;
  }

  function learn(event: SessionEvent): void {
    if (event.origin === "SYSTEM_EVENT") {
      if (event.event_type === "turn.completed") {
        const { turn_id, stop_reason, folded_into } = event.payload;
        note(turn_id).end = {
          outcome: "completed",
          reason: stop_reason,
          ...(folded_into !== undefined && { foldedInto: folded_into }),
        };
      } else if (event.event_type === "turn.failed") {
        note(event.payload.turn_id).end = { outcome: "failed", reason: event.payload.reason };
      } else if (event.event_type === "turn.partial") note(event.payload.turn_id).text = event.payload.text;
    } else if (event.origin === "AGENT_EVENT") {
      if (event.event_type === "result") note(event.turn_id).result = event.payload;
      // A subagent's words are not the turn's answer.
      else if (event.event_type === "assistant" && typeof event.payload.parent_tool_use_id !== "string") {
        const text = textOf(event.payload);
        if (text !== "") note(event.turn_id).text = text;
      }
    }
  }

  return {
    push(event) {
      learn(event);
      const first = turns.get(turnId)?.end;
      if (first === undefined) return undefined;
      let seen = turns.get(turnId);
      for (let hops = 0; seen?.end?.foldedInto !== undefined && hops < turns.size; hops++)
        seen = turns.get(seen.end.foldedInto);
      if (seen?.end === undefined) return undefined;
      const { end, result, text } = seen;
      return { turnId, outcome: end.outcome, reason: end.reason, result, text: result?.result ?? text ?? "" };
    },
  };
}
