/** A part of a path glob: `**`, a literal name (of the session's folder), or a name with wildcards. */
export type Segment = "**" | { readonly literal: string } | { readonly glob: string };

/**
 * Whether the whole text matches: `*` is any characters, `?` is one. No regular expression: its time is bounded by the lengths, whatever
 * the agent wrote.
 */
export function matchesGlob(glob: string, text: string): boolean {
  const [first = "", ...rest] = glob.split("*");
  const last = rest.pop();
  if (last === undefined) return text.length === first.length && fits(first, text, 0);
  if (text.length < first.length + last.length || !fits(first, text, 0)) return false;
  const end = text.length - last.length;
  if (!fits(last, text, end)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = find(piece, text, at, end);
    if (found === -1) return false;
    at = found + piece.length;
  }
  return true;
}

/** Whether `piece`, in which `?` is any character, stands at `at`. */
function fits(piece: string, text: string, at: number): boolean {
  if (!piece.includes("?")) return text.startsWith(piece, at);
  for (let index = 0; index < piece.length; index++) {
    if (piece[index] !== "?" && piece[index] !== text[at + index]) return false;
  }
  return at + piece.length <= text.length;
}

function find(piece: string, text: string, from: number, end: number): number {
  if (!piece.includes("?")) {
    const found = text.indexOf(piece, from);
    return found !== -1 && found + piece.length <= end ? found : -1;
  }
  for (let at = from; at + piece.length <= end; at++) if (fits(piece, text, at)) return at;
  return -1;
}

const matchesName = (segment: Segment, name: string): boolean =>
  segment === "**" || ("literal" in segment ? segment.literal === name : matchesGlob(segment.glob, name));

/** `whole`: the path itself matches. `inside`: something at or below the path could match. */
export type PathReach = "whole" | "inside";

/** Whether the names of a path match a path glob; `**` is any number of names. */
export function matchesPath(pattern: readonly Segment[], names: readonly string[], reach: PathReach): boolean {
  // row[i]: what stands from here on matches pattern[i…]. Filled from the end of the path to its beginning.
  let row = pattern.map((_, index) => reach === "inside" || pattern.slice(index).every((segment) => segment === "**"));
  row.push(true);
  for (const name of names.toReversed()) {
    const next = row.map(() => false);
    for (let index = pattern.length - 1; index >= 0; index--) {
      const segment = pattern[index];
      if (segment === undefined) continue;
      if (segment === "**") next[index] = row[index] === true || next[index + 1] === true;
      else next[index] = row[index + 1] === true && matchesName(segment, name);
    }
    row = next;
  }
  return row[0] === true;
}
