import { expect } from "vitest";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import type { Outcome } from "../../src/sessions/work.ts";

/** An independent account of what a session may tell, kept from its events only. */
export function createJudge() {
  const accepted = new Set<string>();
  const started = new Set<string>();
  const ended = new Set<string>();
  const opened = new Set<string>();
  const resolved = new Set<string>();
  const written = new Set<number | string>();
  const asked = new Set<string>();
  const answered = new Set<string>();
  /** What an event with that number is about: the turn of a query, the request of an answer. */
  const about = new Map<number, string>();
  const taken = new Set<string>();
  let run = "";
  let last = 0;
  const once = (set: Set<number | string>, item: number | string, what: string) => {
    if (set.has(item)) throw new Error(`${what} twice: ${item}`);
    set.add(item);
  };

  const event = (draft: Outcome["events"][number]) => {
    if (draft.seq !== last + 1) throw new Error(`number ${draft.seq} after ${last}`);
    last = draft.seq;
    const payload: JsonObject =
      draft.payload instanceof Uint8Array ? JSON.parse(Buffer.from(draft.payload).toString()) : draft.payload;
    const turn = String(payload.turn_id);
    const request = String(payload.request_id);
    switch (draft.event_type) {
      case "query":
        about.set(draft.seq, String(draft.turn_id));
        return once(accepted, String(draft.turn_id), "accepted");
      case "turn.started":
        if (ended.has(turn)) throw new Error(`started after its end: ${turn}`);
        return once(started, turn, "started");
      case "turn.completed":
      case "turn.failed":
        return once(ended, turn, "ended");
      case "request.opened":
        return once(opened, request, "opened");
      case "request.resolved":
        if (!opened.has(request)) throw new Error(`resolved before it was opened: ${request}`);
        return once(resolved, request, "resolved");
      case "control_request":
        if (draft.origin === "USER_EVENT") asked.add(String(payload.request_id));
        return;
      case "control_response":
        if (draft.origin === "USER_EVENT" && isJsonObject(payload.response))
          about.set(draft.seq, String(payload.response.request_id));
        if (draft.command_id !== undefined && draft.origin === "AGENT_EVENT") {
          const response = isJsonObject(payload.response) ? payload.response : {};
          return once(answered, String(response.request_id), "control answered");
        }
    }
  };

  const outcome = (out: Outcome) => {
    out.events.forEach(event);
    run = out.state.run ?? run;
    for (const { line } of out.stdin) {
      const item = typeof line === "number" ? (about.get(line) ?? String(line)) : answerOf(line);
      if (item === undefined) continue;
      // A later process may get a message that an earlier one never took, and nothing else again.
      if (taken.has(item)) throw new Error(`written although it is in the conversation: ${item}`);
      once(written, accepted.has(item) ? `${item} in ${run}` : item, "written");
    }
  };

  /** These messages are in the conversation: nobody may write them again. */
  const inConversation = (ids: Iterable<string>) => {
    for (const id of ids) taken.add(id);
  };

  const closed = () => {
    expect([...accepted, ...started].filter((turn) => !ended.has(turn))).toEqual([]);
    expect([...opened].filter((request) => !resolved.has(request))).toEqual([]);
    expect([...asked].filter((id) => !answered.has(id))).toEqual([]);
  };
  return { outcome, closed, inConversation };
}

const answerOf = (line: JsonObject): string | undefined =>
  line.type === "control_response" && isJsonObject(line.response) ? String(line.response.request_id) : undefined;
