import { isJsonObject, type JsonObject, stringField } from "../../protocol/json.ts";

interface Said {
  readonly event_type: string;
  readonly origin: string;
  readonly payload: JsonObject;
}

/** A session's first devbox has this id; a later one on the same axon has a number at its end. */
export const devboxIdOf = (sessionId: string): string => `dbx_${sessionId.replace(/^ses_/, "")}`;

/**
 * Our system events in Runloop's words (spec 3.1), one for one; others stay as they are. Payloads are small and of the broker's own making.
 */
export function systemEvent(head: { session_id: string; event_type: string }, payload: Buffer): Said | undefined {
  const parsed: unknown = JSON.parse(payload.toString("utf8"));
  if (!isJsonObject(parsed)) return undefined;
  const same = (more: JsonObject): Said => ({
    event_type: head.event_type,
    origin: "SYSTEM_EVENT",
    payload: { ...parsed, ...more },
  });
  switch (head.event_type) {
    case "turn.failed":
      return same({ error: parsed["message"], stop_reason: parsed["reason"] });
    case "agent.log":
      return same({ log_type: parsed["stream"], message: parsed["text"] ?? parsed["base64"] });
    case "agent.exited":
      return parsed["how"] === "exited" ? agentError(head.session_id, parsed) : undefined;
    case "request.resolved":
      return settled(parsed);
    default:
      return undefined;
  }
}

/** Nobody had asked it to end. */
function agentError(sessionId: string, exited: JsonObject): Said {
  const tail = stringField(exited, "stderr_tail")?.trim();
  const how = exited["signal"] === null ? `with exit code ${exited["code"]}` : `by ${exited["signal"]}`;
  const message = `The agent ended ${how}.${tail === undefined ? "" : ` Its last words: ${tail}`}`;
  return {
    event_type: "agent.error",
    origin: "SYSTEM_EVENT",
    payload: { devbox_id: devboxIdOf(sessionId), type: "agent_exited", message, ...exited },
  };
}

/**
 * A client of Runloop's takes a request for open until it sees a USER_EVENT that answers it, and would ask its user again at each replay
 * (spec 0.10). One that no user answered is therefore shown as answered with an error.
 */
function settled(resolved: JsonObject): Said | undefined {
  const by = stringField(resolved, "decided_by") ?? "";
  const byUser = resolved["outcome"] === "answered" && by !== "broker" && !by.startsWith("policy:");
  if (byUser) return undefined;
  const { request_id } = resolved;
  const why = resolved["outcome"] === "answered" ? `decided by ${by}` : `${String(resolved["outcome"])}`;
  const error = `This request is settled: ${why}.`;
  return {
    event_type: "control_response",
    origin: "USER_EVENT",
    payload: { type: "control_response", response: { subtype: "error", request_id, error } },
  };
}
