import { readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { REPOSITORY, readText } from "../kit/sources.ts";

test("test/transcripts holds exactly the recordings that its README lists, unchanged in size", () => {
  const folder = join(REPOSITORY, "test/transcripts");
  const rows = (readText("test/transcripts/README.md") ?? "").matchAll(/^\| ([\w.-]+\.ndjson) \| (\d+) \| (\d+) \|/gm);
  const listed = new Map([...rows].map(([, name, , bytes]) => [name ?? "", Number(bytes)]));
  expect(listed.size).toBeGreaterThan(80);
  const present = readdirSync(folder).filter((name) => name !== "README.md");
  expect(present.sort()).toEqual([...listed.keys()].sort());
  const sizes = present.map((name) => [name, Buffer.byteLength(readText(`test/transcripts/${name}`) ?? "")]);
  expect(sizes.filter(([name, bytes]) => listed.get(String(name)) !== bytes)).toEqual([]);
});
