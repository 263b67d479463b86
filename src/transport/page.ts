import type { LogEvent, Page } from "../log/port.ts";

/** A page is cut short here, after at least one event: lines may have 64 MiB. */
const PAGE_BYTES = 16 * 1024 * 1024;

/** `{events, head, next}` as JSON, spliced from the envelopes' own bytes, so that a page shows exactly what a socket does. */
export function pageBytes({ events, head, next }: Page): Buffer {
  const parts: Uint8Array[] = [Buffer.from('{"events":[')];
  let bytes = 0;
  let last: LogEvent | undefined;
  for (const event of events) {
    bytes += event.envelope.length;
    if (last !== undefined && bytes > PAGE_BYTES) break;
    if (last !== undefined) parts.push(Buffer.from(","));
    parts.push(event.envelope);
    last = event;
  }
  const isWhole = last === events.at(-1);
  parts.push(Buffer.from(`],"head":${head},"next":${isWhole ? next : last?.seq}}`));
  return Buffer.concat(parts);
}
