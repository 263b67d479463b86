import { expect, test } from "vitest";
import { type ClientSession, connect } from "../../src/client/index.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { ADMIN_KEY, type E2e, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";

const script: readonly Rule[] = [
  { text: "echo", reply: { tool: "mcp__page__echo", input: { t: "ping" } } },
  { text: "echo", tool: "mcp__page__echo", result: /(.*)/s, reply: "the page says {{result.1}}" },
  { text: "forbidden", reply: { tool: "Bash", input: { command: "touch forbidden.txt" } } },
  { text: "forbidden", round: 1, reply: "stopped: {{result}}" },
  { round: "any", reply: "fine" },
];

/** A small MCP server: one tool, `echo`, that says who served it. */
function echoServer(name: string, calls: string[]) {
  return (message: JsonObject): JsonObject | undefined => {
    const reply = (result: JsonObject): JsonObject => ({ jsonrpc: "2.0", id: message.id, result });
    switch (message.method) {
      case "initialize":
        return reply({
          protocolVersion: "2025-11-25",
          capabilities: { tools: {} },
          serverInfo: { name: "page", version: "1" },
        });
      case "tools/list":
        return reply({
          tools: [
            {
              name: "echo",
              description: "echoes",
              inputSchema: { type: "object", properties: { t: { type: "string" } } },
            },
          ],
        });
      case "tools/call": {
        const { arguments: input } = isJsonObject(message.params) ? message.params : {};
        calls.push(name);
        return reply({ content: [{ type: "text", text: `${name}:${isJsonObject(input) ? String(input.t) : ""}` }] });
      }
      default:
        return undefined;
    }
  };
}

/** A client of its own, as a page would be. */
function page(e2e: E2e, id: string): { session: ClientSession; close: () => void } {
  const client = connect({ url: e2e.url, token: ADMIN_KEY });
  return { session: client.session(id), close: () => client.close() };
}

forEachVersion(script, (e2e) => {
  verifies(
    "REGISTER",
    "hooks and an MCP server of a client are called, answered, and handed to its newer connection",
    async () => {
      using watched = await e2e().session();
      watched.allowAll();
      const calls: string[] = [];
      const hooked: unknown[] = [];
      const first = page(e2e(), watched.session.id);
      first.session.serve({
        mcpServers: { page: echoServer("first", calls) },
        hooks: {
          PreToolUse: [
            {
              matcher: "Bash",
              callback: (input) => {
                hooked.push(input.tool_name);
                return {
                  hookSpecificOutput: {
                    hookEventName: "PreToolUse",
                    permissionDecision: "deny",
                    permissionDecisionReason: "house rule",
                  },
                };
              },
            },
          ],
        },
      });
      await watched.first("registration", (event) => event.event_type === "registration.changed");
      expect(await watched.send("echo")).toMatchObject({ outcome: "completed", text: "the page says first:ping" });
      const refused = await watched.send("forbidden");
      expect(refused.text).toContain("house rule");
      expect(hooked).toEqual(["Bash"]);
      // The page is loaded again: its new connection takes over.
      const second = page(e2e(), watched.session.id);
      second.session.serve({ mcpServers: { page: echoServer("second", calls) } });
      await watched.first("a change of it", () => watched.all("registration.changed").length >= 2);
      expect(await watched.send("echo")).toMatchObject({ text: "the page says second:ping" });
      expect(calls).toEqual(["first", "second"]);
      first.close();
      second.close();
    },
  );

  test("known-bugs 10, spec 0.10: a client that left blocks nobody's turn", async () => {
    using watched = await e2e().session();
    watched.allowAll();
    const gone = page(e2e(), watched.session.id);
    gone.session.serve({ mcpServers: { page: echoServer("gone", []) } });
    await watched.first("registration", (event) => event.event_type === "registration.changed");
    gone.close();
    await watched.first("a change of it", () => watched.all("registration.changed").length >= 2);
    expect(await watched.send("hello")).toMatchObject({ outcome: "completed", text: "fine" });
  });
});
