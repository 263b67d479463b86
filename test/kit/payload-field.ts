import { isJsonObject } from "../../src/protocol/json.ts";

/** A field of an event's payload; undefined when there is none. */
export function payloadField(event: { readonly payload: unknown } | undefined, name: string): unknown {
  return isJsonObject(event?.payload) ? event.payload[name] : undefined;
}
