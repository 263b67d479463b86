import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect } from "vitest";
import { createBroker } from "../../src/broker.ts";
import type { BrokerOptions } from "../../src/options.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { startBystanders } from "../kit/bystanders.ts";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { ADMIN_KEY, startServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

/** The code that a start is refused with. Whatever it had opened by then is let go. */
async function refusal(options: Record<string, unknown>): Promise<string> {
  try {
    const broker = await createBroker({
      runner: "inline",
      port: 0,
      logLevel: "silent",
      adminKey: ADMIN_KEY,
      ...options,
    } as Partial<BrokerOptions>);
    await broker.close();
    return "started";
  } catch (error) {
    if (error instanceof BrokerError) return error.code;
    throw error;
  }
}

verifies(
  "DATA-DIR",
  "a start with a port or a data directory that it cannot have is refused by code, and the running server does not notice",
  async () => {
    using folder = makeTempDir();
    const at = (name: string): string => join(folder.path, name);
    await using server = await startServer();
    using bystanders = await startBystanders(server);
    writeFileSync(at("file"), "not a directory");
    expect(await refusal({ dataDir: at("fresh"), port: server.broker.port })).toBe("port_in_use");
    // Refused in the last step, it has let go of its data directory.
    expect(await refusal({ dataDir: at("fresh") })).toBe("started");
    expect(await refusal({ dataDir: server.dataDir })).toBe("data_dir_in_use");
    for (const dataDir of [at("file"), at("file/below"), "/proc/nothing", "/dev/null"]) {
      expect(await refusal({ dataDir }), dataDir).toBe("data_dir_unusable");
    }
    const newer = new DatabaseSync(join(at("fresh"), "patchbay.db"));
    newer.exec("UPDATE meta SET value = '99' WHERE key = 'schema'");
    newer.close();
    expect(await refusal({ dataDir: at("fresh") })).toBe("data_dir_newer");
    writeFileSync(join(at("fresh"), "patchbay.db"), "this is no database".repeat(500));
    expect(await refusal({ dataDir: at("fresh") })).toBe("data_dir_unusable");
    await bystanders.expectUnharmed("starts that were refused");
  },
);

verifies("CONFIG", "an unknown name, a wrong value and half of a pair stop the start", async () => {
  using folder = makeTempDir();
  const dataDir = join(folder.path, "data");
  for (const wrong of [
    { dataDirectory: "x" },
    { constructor: "x" },
    { port: -1 },
    { port: "80 80" },
    { heartbeatMs: 0 },
    { engine: "postgres" },
    { runner: "some" },
    { allowedOrigins: ["https://a.example/path"] },
    { agentEnv: { "A B": "x" } },
    { tlsCert: "/nonexistent.pem" },
    { adminKey: "with space" },
    { secretsKey: "too-short" },
    { secretsKey: `${"x".repeat(32)},too-short` },
    { claudeBin: "a\0b" },
  ]) {
    expect(await refusal({ dataDir, ...wrong }), JSON.stringify(wrong)).toBe("config_invalid");
  }
  expect(readdirSync(folder.path)).toEqual([]);
});

verifies(
  "AGENT-CWD",
  "a cwd that leads out of the tenant's folder is refused and nothing is started, whatever it is made of",
  async () => {
    using folder = makeTempDir();
    const workspaceRoot = join(folder.path, "root");
    const mine = join(workspaceRoot, "default");
    for (const path of [mine, `${workspaceRoot}/default-evil`, `${workspaceRoot}/others`])
      mkdirSync(path, { recursive: true });
    symlinkSync("/etc", join(mine, "link"));
    symlinkSync("../others", join(mine, "sibling"));
    symlinkSync("/nonexistent", join(mine, "broken"));
    symlinkSync("loop", join(mine, "loop"));
    writeFileSync(join(mine, "file"), "");
    await using server = await startServer({ options: { workspaceRoot, claudeBin: fakeAgentBinary(folder.path) } });
    using bystanders = await startBystanders(server);
    const before = (await server.call("GET", "/v1/sessions")).body.sessions.length;
    const folders = readdirSync(workspaceRoot);
    const bad = [
      "..",
      "../others",
      "../default-evil",
      "../../etc",
      "a/../../others",
      "/etc",
      mine,
      "link",
      "link/ssl",
      "sibling",
      "broken",
      "loop",
      "file",
      "file/x",
      "a\0b",
      "sessions",
      "sessions/x",
      "SESSIONS/x",
      "%2e%2e",
      "a".repeat(300),
    ];
    for (const cwd of bad) {
      const { status, body } = await server.call("POST", "/v1/sessions", { body: { cwd, prompt: "go" } });
      expect([status, body.error?.code], JSON.stringify(cwd.slice(0, 40))).toEqual([400, "cwd_refused"]);
    }
    expect((await server.call("GET", "/v1/sessions")).body.sessions).toHaveLength(before);
    expect(readdirSync(workspaceRoot)).toEqual(folders);
    await bystanders.expectUnharmed("folders that were refused");
  },
);

verifies(
  "AGENT-ARGS",
  "flags and variables off the allow-list are refused by index and name, over the wire too",
  async () => {
    await using server = await startServer();
    using bystanders = await startBystanders(server);
    for (const args of [
      ["--dangerously-skip-permissions"],
      ["--add-dir=/"],
      ["--mcp-config={}"],
      ["--settings={}"],
      ["--resume=x"],
      ["--permission-mode", "bypassPermissions"],
      ["--max-turns"],
      ["--max-turns", "--verbose"],
      ["--fallback-model=a\0b"],
      ["positional"],
      ["--__proto__"],
      [""],
    ]) {
      const { status, body } = await server.call("POST", "/v1/sessions", { body: { agent: { args } } });
      expect([status, body.error?.code, body.error?.details.field], args.join(" ")).toEqual([
        400,
        "agent_arg_refused",
        "agent.args[0]",
      ]);
    }
    for (const name of ["LD_PRELOAD", "NODE_OPTIONS", "PATH", "HOME", "CLAUDE_CONFIG_DIR", "GIT_SSH_COMMAND", "A=B"]) {
      const { status, body } = await server.call("POST", "/v1/sessions", { body: { agent: { env: { [name]: "x" } } } });
      expect([status, body.error?.code], name).toEqual([400, "agent_arg_refused"]);
    }
    await bystanders.expectUnharmed("arguments that were refused");
  },
);
