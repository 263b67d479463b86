import { clean } from "./terminal.ts";

/** Columns as wide as their widest cell. Cells cannot drive the terminal. */
export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const cells = [head, ...rows].map((row) => row.map((cell) => clean(cell).replaceAll(/[\n\t]/g, " ")));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  for (const row of cells)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    );
}
