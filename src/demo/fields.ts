/** The named field of a parsed JSON object, or undefined for anything that has no such field. */
export function fieldOf(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, name)?.value;
}

/** A string as it is, anything else as "". */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** An array as it is, anything else as an empty one. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
