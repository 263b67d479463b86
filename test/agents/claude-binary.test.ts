import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { resolveClaude } from "../../src/agents/claude-binary.ts";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

function script(folder: string, name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

test("the configured program is asked for its version, and no other is taken", async () => {
  using temp = makeTempDir();
  const configured = fakeAgentBinary(temp.path);
  expect(await resolveClaude({ configured })).toEqual({ command: configured, version: "9.9.9" });
});

test("without configuration it is the project's own dependency, or claude on the PATH", async () => {
  const { command, version } = await resolveClaude({});
  expect(command).toMatch(/\/claude$/);
  expect(version).toMatch(/^\d+\.\d+\.\d+/);
});

test("a program that is missing, fails or prints no version is unavailable, with what to do", async () => {
  using temp = makeTempDir();
  const cases = [
    [join(temp.path, "missing"), /ENOENT/],
    ["no-such-program-at-all", /on the PATH/],
    [script(temp.path, "fails", "exit 3"), /failed \(3\)/],
    [script(temp.path, "silent", "exit 0"), /did not print a version/],
    [script(temp.path, "chatty", "echo hello"), /did not print a version/],
  ] as const;
  for (const [configured, why] of cases) {
    const refused = expect(resolveClaude({ configured })).rejects;
    await refused.toMatchObject({ code: "agent_unavailable", message: expect.stringMatching(why) });
    await expect(resolveClaude({ configured })).rejects.toThrow(/set PATCHBAY_CLAUDE_BIN/);
  }
});

test("the question carries nothing of the server's environment", async () => {
  using temp = makeTempDir();
  process.env["BROKER_SECRET"] = "s3cret";
  try {
    const configured = script(temp.path, "tells", 'echo "1.2.3-$BROKER_SECRET-end"');
    expect((await resolveClaude({ configured })).version).toBe("1.2.3--end");
  } finally {
    delete process.env["BROKER_SECRET"];
  }
});
