import type { EventLog, LogEvent } from "../log/port.ts";
import { type Seq, seq } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { TurnEnd } from "./port.ts";

const PAGE = 200;

function decode(event: LogEvent): JsonObject {
  const envelope: unknown = JSON.parse(Buffer.from(event.envelope).toString("utf8"));
  return isJsonObject(envelope) ? envelope : {};
}

/** The turn that a `query` event opened. @throws BrokerError history_gone when retention has removed it */
export async function turnOfCommand(log: EventLog, at: Seq): Promise<string> {
  const event = await log.read(at);
  const turnId = event && stringField(decode(event), "turn_id");
  if (turnId === undefined)
    throw new BrokerError("history_gone", "That turn is no longer in the log.", { details: { seq: at } });
  return turnId;
}

async function* eventsOf(log: EventLog, eventType: string, turnId: string, after: Seq): AsyncGenerator<JsonObject> {
  for (let cursor = after; ; ) {
    const page = await log.page({ after: cursor, limit: PAGE, eventType, restricted: true });
    for (const event of page.events) {
      const envelope = decode(event);
      if (envelope.turn_id === turnId) yield envelope;
    }
    if (page.events.length < PAGE) return;
    cursor = seq(page.next);
  }
}

async function firstOf(log: EventLog, eventType: string, turnId: string, after: Seq): Promise<JsonObject | undefined> {
  for await (const envelope of eventsOf(log, eventType, turnId, after))
    return isJsonObject(envelope.payload) ? envelope.payload : {};
  return undefined;
}

/** How a turn that is over ended, read from the log. @throws BrokerError history_gone */
export async function findTurnEnd(log: EventLog, turnId: string, after: Seq): Promise<TurnEnd> {
  const completed = await firstOf(log, "turn.completed", turnId, after);
  const failed = completed === undefined ? await firstOf(log, "turn.failed", turnId, after) : undefined;
  const end = completed ?? failed;
  if (end === undefined)
    throw new BrokerError("history_gone", "The end of that turn is not in the log.", { details: { turn_id: turnId } });
  const resultTurn = stringField(end, "folded_into") ?? turnId;
  return {
    turn_id: turnId,
    outcome: completed === undefined ? "failed" : "completed",
    reason: stringField(end, "stop_reason") ?? stringField(end, "reason") ?? "",
    result: await firstOf(log, "result", resultTurn, after),
  };
}
