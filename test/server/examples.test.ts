import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { ADMIN_KEY, startServer, type TestServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

/** Runs an example to its end, as its comment says. */
async function runExample(server: TestServer, name: string, args: readonly string[]): Promise<string> {
  const program = fileURLToPath(new URL(`../../examples/${name}`, import.meta.url));
  const env = { PATH: process.env["PATH"] ?? "", PATCHBAY_URL: server.url, PATCHBAY_TOKEN: ADMIN_KEY };
  const child = spawn(process.execPath, [program, ...args], { env, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    output += chunk;
  });
  const [code] = await once(child, "close");
  expect(code).toBe(0);
  return output;
}

test("examples/ask.ts prints the answer and refuses what is not Read", async () => {
  await using server = await startServer();
  expect(await runExample(server, "ask.ts", ["hello"])).toBe("echo: hello\n");
  expect(await runExample(server, "ask.ts", ["!ask"])).toContain('"behavior":"deny"');
});

test("examples/follow.ts goes on where it was", async () => {
  await using server = await startServer();
  using folder = makeTempDir();
  const client = connect({ url: server.url, token: ADMIN_KEY });
  const session = await client.createSession();
  await session.send("one");
  const { head } = await session.page({ limit: 1 });
  await session.send("two");
  await session.end();
  client.close();
  const cursor = `${folder.path}/cursor`;
  const all = await runExample(server, "follow.ts", [session.id, cursor]);
  expect(all).toMatch(/says: echo: one\n.*turn ended: end_turn\n.*says: echo: two\n.*turn ended: end_turn\n$/s);
  expect(await runExample(server, "follow.ts", [session.id, cursor])).toBe("");
  writeFileSync(cursor, String(head));
  expect(await runExample(server, "follow.ts", [session.id, cursor])).not.toContain("echo: one");
});
