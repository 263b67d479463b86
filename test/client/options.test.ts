import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { flagOf, readConfiguration, variableOf } from "../../src/configuration.ts";
import { BROKER_DEFAULTS, OPTION_NAMES, resolveOptions } from "../../src/options.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const broker = (environment: Record<string, string>, flags: Record<string, unknown> = {}) =>
  readConfiguration(environment, flags).broker;

verifies("CONFIG", "every option has a variable and a flag of the same name, and a flag wins", () => {
  expect(OPTION_NAMES.map(variableOf)).toEqual([
    "PATCHBAY_HOST",
    "PATCHBAY_PORT",
    "PATCHBAY_TLS_CERT",
    "PATCHBAY_TLS_KEY",
    "PATCHBAY_DATA_DIR",
    "PATCHBAY_WORKSPACE_ROOT",
    "PATCHBAY_CLAUDE_BIN",
    "PATCHBAY_AGENT_ENV",
    "PATCHBAY_ADMIN_KEY",
    "PATCHBAY_SECRETS_KEY",
    "PATCHBAY_ALLOWED_ORIGINS",
    "PATCHBAY_ALLOWED_HOSTS",
    "PATCHBAY_PUBLIC_URL",
    "PATCHBAY_WEBHOOK_ALLOWED_HOSTS",
    "PATCHBAY_RUNNER",
    "PATCHBAY_ENGINE",
    "PATCHBAY_LOG_LEVEL",
    "PATCHBAY_AGENT_LINE_LIMIT_BYTES",
    "PATCHBAY_QUERY_LIMIT_BYTES",
    "PATCHBAY_INBOUND_LIMIT_BYTES",
    "PATCHBAY_HEARTBEAT_MS",
    "PATCHBAY_IDLE_TIMEOUT_S",
    "PATCHBAY_LIVE_AGENTS",
    "PATCHBAY_LIVE_AGENTS_PER_TENANT",
    "PATCHBAY_STARTING_AGENTS",
    "PATCHBAY_STALL_S",
    "PATCHBAY_RETENTION_DAYS",
    "PATCHBAY_RETENTION_BYTES_PER_TENANT",
  ]);
  expect(flagOf("agentLineLimitBytes")).toBe("--agent-line-limit-bytes");
  expect(broker({ PATCHBAY_PORT: "1", PATCHBAY_HOST: "::1" }, { port: "2" })).toEqual({ port: 2, host: "::1" });
});

verifies("CONFIG", "an unknown PATCHBAY_ name is refused with the nearest known one", () => {
  expect(() => broker({ PATCHBAY_PROT: "1" })).toThrow(/^PATCHBAY_PROT: .*PATCHBAY_PORT/);
  expect(() => broker({ PATCHBAY_ALLOWED_ORIGIN: "x" })).toThrow(/PATCHBAY_ALLOWED_ORIGINS/);
  expect(() => broker({ PATCHBAY_AGENTENV_FOO: "x" })).toThrow(/PATCHBAY_AGENT_ENV_FOO/);
  expect(() => broker({ PATCHBAY_AGENT_ENV_: "x" })).toThrow(/is not a configuration name/);
  expect(broker({ PATH: "/bin", HOME: "/root" })).toEqual({});
});

verifies("CONFIG", "only PATCHBAY_AGENT_ENV_ names reach agents", () => {
  const agentEnv = broker({ PATCHBAY_AGENT_ENV_FOO: "a=b", FOO: "no" }, { agentEnv: ["BAR=x=y"] }).agentEnv;
  expect(agentEnv).toEqual({ FOO: "a=b", BAR: "x=y" });
  expect(() => broker({}, { agentEnv: ["BAR"] })).toThrow(/--agent-env: must be NAME=value/);
  expect(() => broker({ "PATCHBAY_AGENT_ENV_A-B": "1" })).toThrow(/PATCHBAY_AGENT_ENV_<NAME>/);
});

verifies("CONFIG", "secrets are read from files; twice given is refused; messages never show a value", () => {
  using temp = makeTempDir();
  const folder = temp.path;
  writeFileSync(join(folder, "key"), "hunter2hunter2\n");
  expect(broker({ PATCHBAY_ADMIN_KEY_FILE: join(folder, "key") }).adminKey).toBe("hunter2hunter2");
  expect(broker({}, { adminKeyFile: join(folder, "key") }).adminKey).toBe("hunter2hunter2");
  expect(readConfiguration({ PATCHBAY_TOKEN_FILE: join(folder, "key"), PATCHBAY_URL: "http://x" }).client).toEqual({
    url: "http://x",
    token: "hunter2hunter2",
  });
  const twice = { PATCHBAY_ADMIN_KEY: "a", PATCHBAY_ADMIN_KEY_FILE: join(folder, "key") };
  expect(() => broker(twice)).toThrow(/^PATCHBAY_ADMIN_KEY: is given twice/);
  expect(() => broker({ PATCHBAY_ADMIN_KEY_FILE: join(folder, "absent") })).toThrow(/PATCHBAY_ADMIN_KEY_FILE/);
  expect(() => broker({ PATCHBAY_ADMIN_KEY: "with space" })).toThrow(/^(?!.*with space)PATCHBAY_ADMIN_KEY/);
});

verifies("CONFIG", "what is not served yet is refused with its reason", () => {
  expect(() => broker({ PATCHBAY_RUNNER: "some" })).toThrow(/must be one of auto, inline, none/);
  expect(() => broker({ PATCHBAY_ENGINE: "postgres://somewhere/db" })).toThrow(/only sqlite is built/);
  expect(broker({ PATCHBAY_RUNNER: "inline", PATCHBAY_ENGINE: "sqlite" })).toEqual({
    runner: "inline",
    engine: "sqlite",
  });
});

test("wrong values are refused by the name under which they were given", () => {
  expect(() => broker({ PATCHBAY_PORT: "70000" })).toThrow(/^PATCHBAY_PORT: must be at most 65535/);
  expect(() => broker({}, { port: "x" })).toThrow(/^--port: must be a whole number/);
  expect(() => broker({ PATCHBAY_ALLOWED_ORIGINS: "https://a.example,*" })).toThrow(/^PATCHBAY_ALLOWED_ORIGINS/);
  expect(() => broker({ PATCHBAY_ALLOWED_ORIGINS: "https://a.example/" })).toThrow(/exact origins/);
  expect(() => broker({ PATCHBAY_ALLOWED_HOSTS: "a b" })).toThrow(/host names/);
  expect(() => broker({ PATCHBAY_LOG_LEVEL: "loud" })).toThrow(/must be one of fatal/);
  expect(() => resolveOptions({ tlsCert: "x" })).toThrow(/both a certificate and its key/);
  expect(() => resolveOptions({ tlsCert: "/absent", tlsKey: "/absent" })).toThrow(/tlsCert: cannot be read/);
});

test("an empty variable counts as absent", () => {
  expect(broker({ PATCHBAY_ADMIN_KEY: "", PATCHBAY_PORT: "", PATCHBAY_ADMIN_KEY_FILE: "" })).toEqual({});
});

test("defaults are what the contract says, and resolving makes paths absolute", () => {
  expect(BROKER_DEFAULTS).toMatchObject({
    host: "127.0.0.1",
    port: 4400,
    dataDir: "./.patchbay",
    runner: "auto",
    agentLineLimitBytes: 67_108_864,
    queryLimitBytes: 33_554_432,
    inboundLimitBytes: 1_048_576,
  });
  const options = resolveOptions({ dataDir: "somewhere" });
  expect(options.dataDir).toBe(join(process.cwd(), "somewhere"));
  expect(options.workspaceRoot).toBe(join(process.cwd(), "somewhere", "workspaces"));
});

test("any port in text is the number or an error, never something else", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ minLength: 1 }), fc.integer().map(String)), (value) => {
      let port: number | undefined;
      try {
        port = broker({ PATCHBAY_PORT: value }).port;
      } catch {
        return;
      }
      expect(String(port)).toBe(value.replace(/^0+(?=\d)/, ""));
    }),
  );
});
