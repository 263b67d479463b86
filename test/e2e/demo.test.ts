import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { startCli } from "../server/cli-process.ts";

interface Ready {
  readonly url: string;
  readonly session_id: string;
  readonly console_url: string;
}

test("npm run demo: the real CLI works on the demo's bug with a scripted model, and nothing stays behind", async () => {
  await using demo = startCli(["demo", "--json"]);
  const ready = JSON.parse(await demo.line(/^\{.*session_id/)) as Ready;
  const token = /PATCHBAY_TOKEN=(\S+)/.exec(await demo.line(/PATCHBAY_TOKEN=/, "stderr"))?.[1] ?? "";
  const client = connect({ url: ready.url, token });
  const session = client.session(ready.session_id);
  const tools: (string | undefined)[] = [];
  const files: string[] = [];
  session.onRequest(async (request) => {
    tools.push(request.toolName);
    const { file_path: path } = request.input;
    if (typeof path === "string") files.push(path);
    await request.allow();
  });
  expect(await session.send("fix")).toMatchObject({ outcome: "completed", reason: "end_turn" });
  expect(tools).toEqual(["Edit"]);
  expect(files.map((path) => existsSync(path))).toEqual([true]);
  const redeemed = await fetch(ready.console_url, { redirect: "manual" });
  expect(redeemed.headers.get("location")).toBe(`/?session=${ready.session_id}`);
  client.close();
  demo.signal("SIGTERM");
  expect((await demo.ended).code).toBe(0);
  expect(files.map((path) => existsSync(path))).toEqual([false]);
});
