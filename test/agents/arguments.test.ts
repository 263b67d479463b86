import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { claudeArguments } from "../../src/agents/arguments.ts";
import { writeOptionFiles } from "../../src/agents/options.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const ID = "0b0e7c9a-3c1d-4d5e-8f6a-1b2c3d4e5f60";
const NEW = { kind: "new", cliSessionId: ID, optionsFolder: "/home/s1/.patchbay" } as const;
const WEB_SERVER = {
  type: "http",
  url: "https://mcp.example.org/",
  headers: { authorization: "Bearer s3cret" },
} as const;

function refusal(act: () => unknown): BrokerError {
  try {
    act();
  } catch (error) {
    if (error instanceof BrokerError) return error;
  }
  throw new Error("was not refused");
}

/** What a client's `args` become. */
function checked(args: string[]): string[] {
  const all = claudeArguments({ args }, NEW);
  return all.slice(claudeArguments({}, NEW).length);
}

test("the command line of a new session", () => {
  expect(claudeArguments({}, NEW)).toEqual([
    "--output-format=stream-json",
    "--input-format=stream-json",
    "--verbose",
    "--permission-prompt-tool=stdio",
    "--replay-user-messages",
    "--include-partial-messages",
    `--session-id=${ID}`,
    "--permission-mode=default",
    "--strict-mcp-config",
  ]);
});

test("the command line of a resumed session with everything set", () => {
  const options = {
    model: "opus",
    permission_mode: "plan",
    system_prompt: "--be brief\n",
    append_system_prompt: "-x",
    include_partial_messages: false,
    args: ["--max-turns", "3"],
  } as const;
  const line = claudeArguments({ ...options, args: [...options.args] }, { ...NEW, kind: "resume" });
  expect(line.slice(5)).toEqual([
    `--resume=${ID}`,
    "--permission-mode=plan",
    "--model=opus",
    "--system-prompt=--be brief\n",
    "--append-system-prompt=-x",
    "--strict-mcp-config",
    "--max-turns=3",
  ]);
});

verifies("SESSION-OPTIONS", "prompts that fit stand in their argument; longer ones are named by a file", () => {
  const edge = "x".repeat(128 * 1024 - 1 - "--system-prompt=".length);
  expect(claudeArguments({ system_prompt: edge }, NEW).at(-2)).toBe(`--system-prompt=${edge}`);
  const long = { system_prompt: `${edge}y`, append_system_prompt: "é".repeat(70_000) };
  expect(claudeArguments(long, NEW).slice(-3, -1)).toEqual([
    "--system-prompt-file=/home/s1/.patchbay/system-prompt.txt",
    "--append-system-prompt-file=/home/s1/.patchbay/append-system-prompt.txt",
  ]);
});

verifies(
  "SESSION-OPTIONS",
  "MCP servers go by a file of the session's user alone, and nothing of them by the command line",
  async () => {
    using folder = makeTempDir();
    const servers = { files: { command: "files-mcp", env: { TOKEN: "s3cret" } }, web: WEB_SERVER };
    const options = { mcp_servers: servers, system_prompt: "z".repeat(140_000) };
    const optionsFolder = await writeOptionFiles(options, folder.path);
    const line = claudeArguments(options, { ...NEW, optionsFolder });
    expect(line.slice(-2)).toEqual([`--mcp-config=${join(optionsFolder, "mcp.json")}`, "--strict-mcp-config"]);
    expect(line.join(" ")).not.toContain("s3cret");
    expect(JSON.parse(readFileSync(join(optionsFolder, "mcp.json"), "utf8"))).toEqual({ mcpServers: servers });
    for (const name of ["mcp.json", "system-prompt.txt"]) {
      expect(statSync(join(optionsFolder, name)).mode & 0o777, name).toBe(0o600);
    }
    expect(statSync(optionsFolder).mode & 0o777).toBe(0o700);
    expect(claudeArguments({ mcp_servers: {} }, NEW).at(-1)).toBe("--strict-mcp-config");
  },
);

verifies("SESSION-OPTIONS", "what an agent left in the options' place is neither kept nor followed", async () => {
  using folder = makeTempDir();
  const elsewhere = join(folder.path, "elsewhere");
  const home = join(folder.path, "home");
  for (const path of [elsewhere, home]) mkdirSync(path);
  writeFileSync(join(elsewhere, "mcp.json"), "precious");
  symlinkSync(elsewhere, join(home, ".patchbay"));
  const written = await writeOptionFiles({ mcp_servers: {} }, home);
  expect(readFileSync(join(elsewhere, "mcp.json"), "utf8")).toBe("precious");
  expect(readFileSync(join(written, "mcp.json"), "utf8")).toBe('{"mcpServers":{}}');
  // Without such options nothing of an earlier start stays.
  expect(existsSync(await writeOptionFiles({}, home))).toBe(false);
});

verifies("SESSION-OPTIONS", "attribution is turned off by settings of ours, and only when told", () => {
  const git = { name: "Ada", email: "ada@example.org" };
  const settings = (attribution?: boolean): string[] =>
    claudeArguments({ git: { ...git, ...(attribution !== undefined && { attribution }) } }, NEW).filter((argument) =>
      argument.startsWith("--settings"),
    );
  expect(settings(false)).toEqual(['--settings={"includeCoAuthoredBy":false,"attribution":{"commit":"","pr":""}}']);
  expect([...settings(true), ...settings()]).toEqual([]);
});

verifies("AGENT-ARGS", "harmless flags pass in both forms and come out in the one that cannot be misread", () => {
  const schema = '{"type":"object"}';
  expect(checked(["--max-turns", "3", "--max-budget-usd=1.5", "--effort", "high", "--thinking=disabled"])).toEqual([
    "--max-turns=3",
    "--max-budget-usd=1.5",
    "--effort=high",
    "--thinking=disabled",
  ]);
  expect(checked(["--fallback-model", "sonnet,haiku", "--betas=context-1m", "--json-schema", schema])).toEqual([
    "--fallback-model=sonnet,haiku",
    "--betas=context-1m",
    `--json-schema=${schema}`,
  ]);
  expect(checked(["--tools", "", "--disallowedTools", "Bash(git *) Edit"])).toEqual([
    "--tools=",
    "--disallowedTools=Bash(git *) Edit",
  ]);
});

verifies("AGENT-ARGS", "what widens rights, is ours, or is unknown is refused by index and name", () => {
  const flags = (
    "--add-dir --allowedTools --allowed-tools --mcp-config --settings --setting-sources --managed-settings --plugin-dir --plugin-url " +
    "--agents --agent --dangerously-skip-permissions --allow-dangerously-skip-permissions --sdk-url --permission-mode --permission-prompts " +
    "--permission-prompt-tool --system-prompt --system-prompt-file --append-system-prompt-file --output-format --input-format --resume " +
    "--continue --session-id --fork-session --model --debug --debug-file --file --bg --worktree --tmux --remote-control --bare --safe-mode " +
    "--no-session-persistence --session-mirror --await-initialize --print -p -c -r -d -v --version --help -- - --nonsense --Max-Turns --max-turn"
  ).split(" ");
  for (const flag of flags) {
    for (const args of [[flag, "x"], [`${flag}=x`], [flag]]) {
      const error = refusal(() => checked(["--max-turns", "1", ...args]));
      expect(error.code, flag).toBe("agent_arg_refused");
      expect(error.details?.["field"]).toBe("agent.args[2]");
    }
    const named = refusal(() => checked([flag]));
    expect(named.details).toEqual({ field: "agent.args[0]", flag });
    expect(named.message).toContain(flag);
  }
});

verifies("AGENT-ARGS", "no value is a flag, no flag a value, and no text stands alone", () => {
  const bad = [
    ["hello"],
    [""],
    ["--max-turns"],
    ["--max-turns", "--add-dir"],
    ["--fallback-model", "-x"],
    ["--fallback-model=-x"],
    ["--fallback-model=a --add-dir=/"],
    ["--max-turns", "0"],
    ["--max-turns=1e3"],
    ["--max-turns=3\0"],
    ["--max-budget-usd=-1"],
    ["--effort="],
    ["--thinking=maybe"],
    ["--tools=Bash(rm *)"],
    ["--disallowedTools=--add-dir"],
    ["--disallowedTools", "Bash\0"],
    ["--json-schema={"],
    ["--json-schema=/etc/passwd"],
    ["--json-schema=[]"],
    ["--strict-mcp-config=false"],
    ["--strict-mcp-config", "x"],
    ["—max-turns", "3"],
  ];
  for (const args of bad) expect(refusal(() => checked(args)).code, String(args)).toBe("agent_arg_refused");
});

verifies("AGENT-ARGS", "of any tokens, only listed flags ever come out", () => {
  const token = fc.oneof(
    fc.constantFrom("--max-turns", "3", "--add-dir", "--tools=", "--disallowedTools", "--", "-p", "/etc", "Bash"),
    fc.string(),
  );
  const listed = /^--(max-turns=[1-9]\d*|tools=[\w,]*|disallowedTools=[^-\s].*|[a-z-]+)$/s;
  fc.assert(
    fc.property(fc.array(token, { maxLength: 6 }), (args) => {
      let out: string[];
      try {
        out = checked(args);
      } catch (error) {
        expect(error).toMatchObject({ code: "agent_arg_refused" });
        return;
      }
      for (const argument of out) expect(argument).toMatch(listed);
      expect(out.join(" ")).not.toMatch(/(^| )--(add-dir|mcp-config)/);
    }),
    { numRuns: 500 },
  );
});

verifies("AGENT-ARGS", "bypassPermissions, NUL and what no system takes in one argument are refused by field", () => {
  const cases = [
    [{ permission_mode: "bypassPermissions" }, "agent.permission_mode"],
    [{ system_prompt: "a\0b" }, "agent.system_prompt"],
    [{ append_system_prompt: `${"é".repeat(70_000)}\0` }, "agent.append_system_prompt"],
    [{ args: [`--json-schema={"a":"${"x".repeat(140_000)}"}`] }, "agent.args[0]"],
    [{ args: Array(12).fill(`--disallowedTools=${"x".repeat(60_000)}`) }, "agent.args[8]"],
  ] as const;
  for (const [options, field] of cases) {
    const error = refusal(() => claudeArguments({ ...options, args: "args" in options ? [...options.args] : [] }, NEW));
    expect(error.code).toBe("agent_arg_refused");
    expect(error.details?.["field"]).toBe(field);
  }
});
