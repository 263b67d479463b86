import { afterAll, beforeAll, describe, expect } from "vitest";
import { groupMembers } from "../../src/agents/process-table.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { ADMIN_KEY, AGENT_KEY, procOf, startE2e } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";

const script: readonly Rule[] = [
  { text: "env", reply: { tool: "Bash", input: { command: "env -0 | tr '\\0' '\\n' | sort; touch made.txt" } } },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "fine" },
];

const CANARY = "canary-of-the-test-process";

/** All that an agent of these tests may have: ours for everyone, the operator's, the session's. */
const NAMES =
  `ANTHROPIC_API_KEY ANTHROPIC_BASE_URL CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS
   CLAUDE_CONFIG_DIR DISABLE_AUTOUPDATER HOME LANG LOGNAME PATH PROJECT_COLOUR SHELL TERM USER`.split(/\s+/);

beforeAll(() => {
  process.env["E2E_CANARY"] = CANARY;
});
afterAll(() => {
  delete process.env["E2E_CANARY"];
});

for (const candidate of CLI_VERSIONS) {
  describe.concurrent(`claude ${candidate.version}`, () => {
    verifies(
      "SESSION-RESUME",
      "after a restart of the server the next message works and the model knows the conversation",
      async () => {
        await using e2e = await startE2e(candidate, script);
        using before = await e2e.session();
        await before.send("say one");
        const events = before.events.filter(({ preview }) => preview !== true);
        await e2e.restart();
        using after = await e2e.attach(before.session.id);
        expect(await after.send("say two")).toMatchObject({ outcome: "completed", text: "two" });
        expect(after.events.slice(0, events.length)).toEqual(events);
        const numbers = after.events.map(({ seq }) => seq);
        expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
        expect(after.all("agent.started").map(({ payload }) => payload.resumed)).toEqual([false, true]);
        expect(after.ends().map(([, type]) => type)).toEqual(["turn.completed", "turn.completed"]);
        const known = e2e
          .turnsOf(after)
          .at(-1)
          ?.conversation.userTexts.map((text) => text.trim());
        expect(known).toEqual(["say one", "say two"]);
      },
    );

    verifies("AGENT-ENV", "the agent and its commands get the allow-list and nothing of the server's", async () => {
      await using e2e = await startE2e(candidate, script);
      using watched = await e2e.session({ agent: { env: { PROJECT_COLOUR: "green" } } });
      const sent = watched.send("env");
      const request = await watched.request();
      const pid = watched.pid();
      expect(procOf(pid, "environ").map(nameOf).toSorted()).toEqual(NAMES);
      for (const member of groupMembers(pid)) {
        expect(procOf(member.pid, "cmdline").join(" ")).not.toMatch(secrets);
      }
      await request.allow();
      await sent;
      const shown = e2e.turnsOf(watched).at(-1)?.conversation.toolResults[0]?.text ?? "";
      expect(shown).toContain("PROJECT_COLOUR=green");
      expect(shown).toContain(
        `HOME=${procOf(pid, "environ")
          .find((entry) => entry.startsWith("HOME="))
          ?.slice(5)}`,
      );
      expect(shown).not.toContain(CANARY);
      expect(shown).not.toContain(ADMIN_KEY);
      expect(
        shown
          .split("\n")
          .map(nameOf)
          .filter((name) => !NAMES.includes(name) && !OWN_OF_CLI.test(name)),
      ).toEqual([]);
    });
  });
}

const nameOf = (entry: string): string => entry.slice(0, entry.indexOf("="));
const secrets = new RegExp([AGENT_KEY, ADMIN_KEY, CANARY].join("|"));
/** What the CLI and its shell set for a command. */
const OWN_OF_CLI =
  /^(CLAUDE\w*|AI_AGENT|COREPACK_ENABLE_AUTO_PIN|GIT_EDITOR|NoDefaultCurrentDirectoryInExePath|PWD|OLDPWD|SHLVL|_)$/;
