import { expect } from "vitest";
import { agentEnvironment } from "../../src/agents/environment.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { verifies } from "../kit/verifies.ts";

const OWN = { home: "/data/homes/s1", configDir: "/data/homes/s1/.claude" };

function make(session: Record<string, string> = {}, shared: Record<string, string> = {}): Record<string, string> {
  return agentEnvironment({ ...OWN, shared, options: { env: session } });
}

function fieldOf(session: Record<string, string>): unknown {
  try {
    make(session);
  } catch (error) {
    if (error instanceof BrokerError && error.code === "agent_arg_refused") return error.details?.["field"];
  }
  return undefined;
}

verifies("AGENT-ENV", "the environment is made from nothing", () => {
  process.env["BROKER_DB_PASSWORD"] = "s3cret";
  process.env["ANTHROPIC_API_KEY_OF_SERVER"] = "k0";
  try {
    expect(make()).toEqual({
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: OWN.home,
      CLAUDE_CONFIG_DIR: OWN.configDir,
      LANG: "C.UTF-8",
      TERM: "dumb",
      SHELL: "/bin/bash",
      USER: "agent",
      LOGNAME: "agent",
      CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS: "1",
      DISABLE_AUTOUPDATER: "1",
    });
  } finally {
    delete process.env["BROKER_DB_PASSWORD"];
    delete process.env["ANTHROPIC_API_KEY_OF_SERVER"];
  }
});

verifies("AGENT-ENV", "the operator's variables reach every agent, the session's own come on top", () => {
  const made = make(
    { ANTHROPIC_API_KEY: "k1", APP_MODE: "x" },
    { ANTHROPIC_API_KEY: "k0", PATH: "/opt/bin", TZ: "UTC" },
  );
  expect(made).toMatchObject({ ANTHROPIC_API_KEY: "k1", APP_MODE: "x", PATH: "/opt/bin", TZ: "UTC", HOME: OWN.home });
});

verifies("AGENT-ENV", "a session cannot set what chooses programs, libraries, places or where traffic goes", () => {
  const names = (
    "PATH HOME SHELL TMPDIR LD_PRELOAD LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS BUN_OPTIONS BUN_INSTALL " +
    "CLAUDECODE CLAUDE_CONFIG_DIR CLAUDE_CODE_SHELL_PREFIX CLAUDE_CODE_RESUME_INTERRUPTED_TURN CLAUDE_CODE_SIMPLE IS_SANDBOX PATCHBAY_ADMIN_KEY " +
    "GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_EDITOR GIT_PAGER GIT_DIR GIT_EXEC_PATH BASH_ENV ENV PROMPT_COMMAND PS4 IFS SHELLOPTS EDITOR " +
    "VISUAL PAGER BROWSER PYTHONSTARTUP PYTHONPATH PERL5OPT RUBYOPT JAVA_TOOL_OPTIONS HTTP_PROXY https_proxy NO_PROXY SSL_CERT_FILE ANTHROPIC_BASE_URL " +
    "ANTHROPIC_CUSTOM_HEADERS XDG_CONFIG_HOME npm_config_script_shell GLIBC_TUNABLES SSH_ASKPASS DISABLE_AUTOUPDATER MAKEFLAGS GOFLAGS"
  ).split(" ");
  for (const name of names) expect(fieldOf({ [name]: "x" }), name).toBe(`agent.env.${name}`);
});

verifies("AGENT-ENV", "names and values are what a process can hold", () => {
  for (const name of ["", "A-B", "1A", "A B", "A=B", "é", "A\0", "BASH_FUNC_x%%", "A\n"]) {
    expect(fieldOf({ [name]: "x" }), JSON.stringify(name)).toBe(`agent.env.${name}`);
  }
  expect(fieldOf({ FINE: "a\0b" })).toBe("agent.env.FINE");
  expect(fieldOf({ FINE: "x".repeat(131_072) })).toBe("agent.env.FINE");
  const large = "x".repeat(120_000);
  expect(fieldOf({ A: large, B: large, C: large, D: large, E: large })).toBe("agent.env.E");
  expect(make({ _ok1: "a=b\nc", GIT_AUTHOR_NAME: "A", CLAUDE_CODE_MAX_RETRIES: "2" })).toMatchObject({
    _ok1: "a=b\nc",
  });
});

verifies("AGENT-ENV", "not even the operator sets for all what is each session's own", () => {
  for (const name of ["HOME", "CLAUDE_CONFIG_DIR", "CLAUDECODE", "A-B"]) {
    expect(() => make({}, { [name]: "x" })).toThrow(expect.objectContaining({ code: "config_invalid" }));
  }
});

verifies(
  "SESSION-OPTIONS",
  "git identity and file checkpointing are variables, and the client's own env has the last word",
  () => {
    const git = { name: "Ada Lovelace", email: "ada@example.org" };
    const shared = { GIT_AUTHOR_NAME: "Everybody", CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING: "false" };
    const options = { git, file_checkpointing: true, env: { GIT_COMMITTER_NAME: "Build" } };
    expect(agentEnvironment({ ...OWN, shared, options })).toMatchObject({
      GIT_AUTHOR_NAME: "Ada Lovelace",
      GIT_AUTHOR_EMAIL: "ada@example.org",
      GIT_COMMITTER_NAME: "Build",
      GIT_COMMITTER_EMAIL: "ada@example.org",
      CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING: "true",
    });
    const plain = agentEnvironment({ ...OWN, shared: {}, options: { file_checkpointing: false } });
    expect(Object.keys(plain).filter((name) => name.startsWith("GIT_") || name.includes("CHECKPOINTING"))).toEqual([]);
  },
);
