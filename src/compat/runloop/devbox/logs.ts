import { seq } from "../../../protocol/ids.ts";
import type { JsonObject } from "../../../protocol/json.ts";
import { isJsonObject, stringField } from "../../../protocol/json.ts";
import type { Session } from "../../../sessions/port.ts";
import { axonJson } from "../axon-view.ts";

/** So many of the newest lines. */
const MOST = 1_000;
const KINDS = ["agent.log", "agent.error"];

function logLine(json: Uint8Array): JsonObject | undefined {
  const event: unknown = JSON.parse(Buffer.from(json).toString("utf8"));
  if (!isJsonObject(event) || !KINDS.includes(stringField(event, "event_type") ?? "")) return undefined;
  const payload: unknown = JSON.parse(stringField(event, "payload") ?? "null");
  return {
    level: event["event_type"] === "agent.error" ? "ERROR" : "INFO",
    source: "entrypoint",
    timestamp_ms: event["timestamp_ms"],
    message: stringField(payload, "message") ?? "",
  };
}

/** What an axon's log says of its agent beside its conversation: lines that were no messages, what was left out, and how it ended. */
export async function agentLogs(session: Session, restricted: boolean): Promise<readonly JsonObject[]> {
  const kinds = ["agent.log", "agent.exited"];
  const pages = await Promise.all(
    kinds.map((eventType) => session.log.page({ after: seq(0), limit: MOST, eventType, restricted })),
  );
  const events = pages.flatMap((page) => page.events).sort((one, other) => one.seq - other.seq);
  const lines: JsonObject[] = [];
  for (const event of events) {
    const json = axonJson(event);
    const line = json && logLine(json);
    if (line !== undefined) lines.push(line);
  }
  return lines.slice(-MOST);
}
