import type { Row } from "./port.ts";

/** A column as a whole number. @throws TypeError when it holds anything else */
export function integerOf(row: Row, column: string): number {
  const value = row[column];
  if (typeof value !== "number") throw wrong(column, "a number");
  return value;
}

/** A column as text. @throws TypeError when it holds anything else */
export function textOf(row: Row, column: string): string {
  const value = row[column];
  if (typeof value !== "string") throw wrong(column, "text");
  return value;
}

/** A column as bytes. @throws TypeError when it holds anything else */
export function bytesOf(row: Row, column: string): Uint8Array {
  const value = row[column];
  if (!(value instanceof Uint8Array)) throw wrong(column, "bytes");
  return value;
}

function wrong(column: string, expected: string): TypeError {
  return new TypeError(`column ${column} does not hold ${expected}`);
}
