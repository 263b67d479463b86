import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** The line with the bug, and how it should read. */
export const DEMO_BUG = {
  file: "src/cart.js",
  wrong: "  return sum(items) - discountPercent;",
  right: "  return sum(items) * (1 - discountPercent / 100);",
} as const;

const FILES: Readonly<Record<string, string>> = {
  "README.md": `# Cart

Adds up what is in a shopping cart. One function, one test, one bug.

    node --test

The test says that 10 % off 200 should leave 180. At the moment it leaves 190.
`,
  "package.json": `{
  "name": "cart",
  "version": "1.0.0",
  "private": true,
  "type": "module",
  "scripts": { "test": "node --test" }
}
`,
  [DEMO_BUG.file]: `/** What the customer pays for \`items\` (each with a price and a count) after a discount in percent. */
export function total(items, discountPercent = 0) {
${DEMO_BUG.wrong}
}

function sum(items) {
  return items.reduce((amount, item) => amount + item.price * item.count, 0);
}
`,
  "test/cart.test.js": `import assert from "node:assert/strict";
import { test } from "node:test";
import { total } from "../src/cart.js";

test("adds up prices and counts", () => {
  assert.equal(total([{ price: 50, count: 3 }, { price: 25, count: 2 }]), 200);
});

test("takes the discount off", () => {
  assert.equal(total([{ price: 100, count: 2 }], 10), 180);
});
`,
};

/** Writes the demo's small project into a folder, which is made if needed; a file that is there already is replaced. */
export async function writeDemoWorkspace(folder: string): Promise<void> {
  for (const [name, content] of Object.entries(FILES)) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
  }
}
