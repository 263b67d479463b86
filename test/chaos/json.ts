export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A string found by a path of names; empty when it is not there. */
export function word(value: unknown, ...path: readonly string[]): string {
  let found = value;
  for (const name of path) found = isJsonObject(found) ? found[name] : undefined;
  return typeof found === "string" ? found : "";
}

/** The items of the first array of a JSON text under that name, each as it is written there. */
export function arrayItems(text: string, name: string): string[] {
  const opening = `"${name}":[`;
  let at = text.indexOf(opening);
  if (at < 0) throw new Error(`no ${name} in ${text.slice(0, 200)}`);
  at += opening.length;
  const items: string[] = [];
  let depth = 0;
  let start = at;
  for (; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === 0x22) at = endOfString(text, at);
    else if (char === 0x7b || char === 0x5b) depth += 1;
    else if (char === 0x7d || char === 0x5d) {
      depth -= 1;
      if (depth < 0) break;
    } else if (char === 0x2c && depth === 0) {
      items.push(text.slice(start, at));
      start = at + 1;
    }
  }
  if (at > start) items.push(text.slice(start, at));
  return items;
}

/** Where the string that begins there has its closing quote. */
function endOfString(text: string, from: number): number {
  let at = text.indexOf('"', from + 1);
  for (; at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text.charCodeAt(at - 1 - slashes) === 0x5c) slashes += 1;
    if (slashes % 2 === 0) return at;
  }
  throw new Error("a string does not end");
}
