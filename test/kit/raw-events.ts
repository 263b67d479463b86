/** An envelope whose payload was cut out of the text that came, not parsed and printed again. */
export interface RawEvent {
  readonly seq: number;
  readonly eventType: string;
  readonly source: string;
  readonly preview: boolean;
  /** The payload's text exactly as it was on the wire. */
  readonly payload: string;
}

const PAYLOAD = ',"payload":';

/** Cuts an envelope, alone or inside an event frame. The payload is its last field. */
export function rawEvent(envelope: string): RawEvent {
  const { seq, event_type, source, preview } = JSON.parse(envelope);
  const payload = envelope.slice(envelope.indexOf(PAYLOAD) + PAYLOAD.length, -1);
  return { seq, eventType: event_type, source, preview: preview === true, payload };
}

/** The envelopes of a page `{"events":[…], …}`, as they stand in its text. */
export function pageEvents(page: string): RawEvent[] {
  const START = '{"events":[';
  if (!page.startsWith(START)) throw new Error(`not a page: ${page.slice(0, 100)}`);
  const found: RawEvent[] = [];
  let depth = 0;
  let from = START.length;
  let inString = false;
  for (let at = START.length; at < page.length; at += 1) {
    const character = page[at];
    if (inString) {
      if (character === "\\") at += 1;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === "{") {
      if (depth === 0) from = at;
      depth += 1;
    } else if (character === "}") {
      depth -= 1;
      if (depth === 0) found.push(rawEvent(page.slice(from, at + 1)));
    } else if (character === "]" && depth === 0) break;
  }
  return found;
}

/** What the agent wrote, in order. */
export const agentPayloads = (events: readonly RawEvent[]): string[] =>
  events.filter(({ source }) => source === "agent").map(({ payload }) => payload);
