import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { fieldOf, listOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { ADMIN_KEY, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";

const SERVER = fileURLToPath(import.meta.resolve("../kit/mcp-server.mjs"));
const SECRET = "s3cret-of-the-host";
const ATTRIBUTION = /Co-Authored-By|Generated with/;
/** A PNG of one transparent pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const WHO = 'echo "$GIT_AUTHOR_NAME <$GIT_AUTHOR_EMAIL> $GIT_COMMITTER_NAME <$GIT_COMMITTER_EMAIL>"';

const script: readonly Rule[] = [
  { text: "who", reply: { tool: "Bash", input: { command: WHO, description: "say who" } } },
  { text: "ping", reply: { tool: "mcp__host__ping", input: {} } },
  { text: "read", reply: { tool: "Read", input: { file_path: "{{cwd}}/notes.txt" } } },
  {
    text: "read",
    round: 1,
    reply: { tool: "Write", input: { file_path: "{{cwd}}/notes.txt", content: "changed" } },
  },
  { round: "any", reply: "fine" },
];

const toolNames = (body: unknown): readonly unknown[] =>
  listOf(fieldOf(body, "tools")).map((tool) => fieldOf(tool, "name"));

/** What every user of the machine can read of a process. */
const commandLineOf = (pid: number): string => readFileSync(`/proc/${pid}/cmdline`, "utf8");

forEachVersion(script, (e2e) => {
  verifies(
    "SESSION-OPTIONS",
    "git identity, no attribution, the host's MCP servers and no others, long prompts: all reach the agent",
    async () => {
      const long = `${"p".repeat(200_000)} THE-END`;
      using watched = await e2e().session({
        agent: {
          git: { name: "Ada Lovelace", email: "ada@example.org", attribution: false },
          mcp_servers: {
            host: { command: process.execPath, args: [SERVER], env: { SECRET }, alwaysLoad: true },
          },
          system_prompt: `SYSTEM ${long}`,
          append_system_prompt: `APPENDED ${long}`,
        },
      });
      const other = { command: process.execPath, args: [SERVER] };
      await writeFile(join(watched.folder, ".mcp.json"), JSON.stringify({ mcpServers: { other } }));
      watched.allowAll();
      await watched.send("who");
      await watched.send("ping");
      expect(commandLineOf(watched.pid())).toContain("mcp.json");
      expect(commandLineOf(watched.pid())).not.toContain(SECRET);
      const [first, ...more] = e2e().turnsOf(watched);
      const system = JSON.stringify(fieldOf(first?.body, "system"));
      for (const word of ["SYSTEM ppp", "APPENDED ppp"]) expect(system).toContain(word);
      expect(system.split("THE-END")).toHaveLength(3);
      expect(JSON.stringify(first?.body)).not.toMatch(ATTRIBUTION);
      expect(toolNames(first?.body)).toContain("mcp__host__ping");
      const results = more.flatMap(({ conversation }) => conversation.toolResults.map(({ text }) => text.trim()));
      const identity = "Ada Lovelace <ada@example.org>";
      expect(results).toEqual([`${identity} ${identity}`, `pong ${SECRET}`]);
      const init = watched.lines("system").find((line) => fieldOf(line.payload, "subtype") === "init");
      expect(listOf(fieldOf(init?.payload, "mcp_servers")).map((server) => fieldOf(server, "name"))).toEqual(["host"]);
    },
  );

  verifies(
    "SESSION-OPTIONS",
    "a turn's files are rewound to its message, an image reaches the model, and without options nothing is different",
    async () => {
      using watched = await e2e().session({ agent: { file_checkpointing: true } });
      watched.allowAll();
      const notes = join(watched.folder, "notes.txt");
      await writeFile(notes, "as it was");
      const sent = watched.send("read");
      await sent;
      expect(await readFile(notes, "utf8")).toBe("changed");
      const rewound = await watched.session.control({ subtype: "rewind_files", user_message_id: sent.turnId });
      expect(rewound).toMatchObject({ canRewind: true });
      expect(await readFile(notes, "utf8")).toBe("as it was");

      const source = { type: "base64", media_type: "image/png", data: PIXEL };
      const content = [
        { type: "image", source },
        { type: "text", text: "what is this" },
      ];
      await watched.send({ type: "user", message: { role: "user", content } });
      const body = e2e().turnsOf(watched).at(-1)?.body;
      const blocks = listOf(fieldOf(body, "messages")).flatMap((message) => listOf(fieldOf(message, "content")));
      const image = blocks.find((block) => fieldOf(block, "type") === "image");
      expect(fieldOf(image, "source")).toEqual(source);
      expect(JSON.stringify(body)).toMatch(ATTRIBUTION);
      expect(await watched.session.control({ subtype: "get_context_usage" })).toHaveProperty("totalTokens");
    },
  );

  verifies("TRANSCRIPT", "a conversation with the CLI, both directions, without its account", async () => {
    using watched = await e2e().session();
    const turns = [watched.send("one"), watched.send("two")];
    await Promise.all(turns);
    const answer = await fetch(`${e2e().url}/v1/sessions/${watched.session.id}/transcript`, {
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    const lines = (await answer.text())
      .trim()
      .split("\n")
      .map((line): unknown => JSON.parse(line));
    const sent = lines
      .filter((line) => fieldOf(line, "dir") === "send")
      .map((line) => fieldOf(fieldOf(line, "msg"), "uuid"));
    expect(sent).toEqual(turns.map(({ turnId }) => turnId));
    const received = lines.filter((line) => fieldOf(line, "dir") === "recv").map((line) => fieldOf(line, "msg"));
    const durable = () => watched.events.filter((event) => event.origin === "AGENT_EVENT" && event.preview !== true);
    // Lines may come after the last result: those that either side has not seen yet are left out.
    await watched.first("what the transcript has", () => durable().length >= received.length);
    const seen = durable().slice(1, received.length);
    expect(received.slice(1)).toEqual(seen.map(({ payload }) => payload));
    const account = fieldOf(fieldOf(fieldOf(received[0], "response"), "response"), "account");
    expect(Object.values(account ?? {}).filter((value) => typeof value === "string")).toEqual(
      expect.arrayContaining(["[redacted]"]),
    );
    expect(new Set(Object.values(account ?? {}))).toEqual(new Set(["[redacted]"]));
  });
});
