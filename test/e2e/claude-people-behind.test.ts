import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { connect } from "../../src/client/index.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { listedRequests, postAnswer, requestOf, resolutionOf, WAYS } from "../kit/answering.ts";
import { ADMIN_KEY, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import { isGone } from "../kit/watched-session.ts";

const TASK = "Make the file sub.txt.";
const agent = (behind: boolean): JsonObject => ({
  description: "make it",
  prompt: behind ? `${TASK} Behind $1.` : TASK,
  subagent_type: "general-purpose",
  run_in_background: behind,
});
const touch = { tool: "Bash", input: { command: "touch sub.txt" } };

const script: readonly Rule[] = [
  // In the background: asks only when the test lets it, which is after the main result.
  { scope: "subagent", text: { regex: "Behind one" }, reply: [{ hold: "one" }, touch] },
  { scope: "subagent", text: { regex: "Behind two" }, reply: [{ hold: "two" }, touch] },
  { scope: "subagent", text: TASK, reply: touch },
  { scope: "subagent", text: TASK, round: 1, reply: "so: {{result}}" },
  { text: { regex: "^behind (\\w+)" }, notification: true, reply: "it is reported" },
  { text: { regex: "^behind (\\w+)" }, reply: { tool: "Agent", input: agent(true) } },
  { text: { regex: "^behind (\\w+)" }, round: 1, reply: "it runs behind" },
  { text: "delegate", reply: { tool: "Agent", input: agent(false) } },
  { text: "delegate", round: 1, reply: "delegated" },
  {
    text: "two",
    reply: [
      { tool: "Read", input: { file_path: "/etc/passwd" } },
      { tool: "Read", input: { file_path: "/etc/group" } },
    ],
  },
  { text: "two", round: 1, reply: "both read" },
  { text: "hooked", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: "echo", reply: { tool: "mcp__page__echo", input: {} } },
  { text: { regex: "^(hooked|echo)" }, round: 1, reply: "so: {{result}}" },
  { round: "any", reply: "fine" },
];

const ALLOW = { behavior: "allow" };
const DENY = { behavior: "deny", message: "only one" };

/** An MCP server of a page: answers what `tools/call` is answered by `call`. */
function page(call: (message: JsonObject) => Promise<JsonObject>) {
  const results: Readonly<Record<string, JsonObject>> = {
    initialize: {
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name: "page", version: "1" },
    },
    "tools/list": { tools: [{ name: "echo", description: "echoes", inputSchema: { type: "object", properties: {} } }] },
  };
  return (message: JsonObject): JsonObject | undefined | Promise<JsonObject> => {
    if (message.method === "tools/call") return call(message);
    const result = results[String(message.method)];
    return result && { jsonrpc: "2.0", id: message.id, result };
  };
}

forEachVersion(script, (e2e) => {
  verifies(
    "P6-ONE-ANSWER",
    "two permissions that are open together are answered in reverse order over HTTP",
    async () => {
      using watched = await e2e().session();
      const sent = watched.send("two");
      const first = await watched.request();
      const second = await watched.request();
      const ids = (await listedRequests(e2e(), watched)).map(({ request_id }) => request_id);
      expect(ids).toEqual([first.request_id, second.request_id]);
      expect((await postAnswer(e2e(), watched, second, ALLOW)).status).toBe(202);
      expect((await postAnswer(e2e(), watched, first, DENY)).status).toBe(202);
      expect(await sent).toMatchObject({ outcome: "completed", text: "both read" });
      const resolved = watched.all("request.resolved").map(({ payload }) => [payload.request_id, payload.decision]);
      expect(resolved).toEqual([
        [second.request_id, { behavior: "allow" }],
        [first.request_id, DENY],
      ]);
      const results = e2e().turnsOf(watched).at(-1)?.conversation.toolResults ?? [];
      expect(results.map(({ isError }) => isError).toSorted()).toEqual([false, true]);
    },
  );

  verifies(
    "P6-ONE-ANSWER",
    "known bug 10: a permission of a subagent is answered over HTTP, and a second answer is told whose won",
    async () => {
      using watched = await e2e().session();
      const sent = watched.send("delegate");
      const request = await watched.request();
      expect(request.request["agent_id"]).toBeTypeOf("string");
      expect((await postAnswer(e2e(), watched, request, ALLOW)).status).toBe(202);
      expect(await postAnswer(e2e(), watched, request, DENY)).toMatchObject({
        status: 409,
        body: { error: { code: "request_already_answered", details: { decided_by: "e2eadmin", decision: ALLOW } } },
      });
      expect(await sent).toMatchObject({ outcome: "completed", text: "delegated" });
      expect(existsSync(join(watched.folder, "sub.txt"))).toBe(true);
    },
  );

  for (const [index, way] of WAYS.entries()) {
    const name = ["one", "two"][index] ?? "";
    verifies(
      "P6-ONE-ANSWER",
      `known-bugs 10: a background subagent asks after the main result and is answered over ${way.name}`,
      async () => {
        using watched = await e2e().session();
        const sent = watched.send(`behind ${name}`);
        expect(await sent).toMatchObject({ outcome: "completed", text: "it runs behind" });
        const end = await watched.end(sent.turnId);
        expect(watched.all("request.opened")).toEqual([]);
        e2e().release(name);
        const request = await watched.request();
        expect(request).toMatchObject({ kind: "permission", toolName: "Bash" });
        expect(request.seq).toBeGreaterThan(end.seq);
        expect((await watched.session.view()).state).toBe("requires_action");
        await way.answer(e2e(), watched, request, ALLOW);
        const reported = await watched.first("turn of the agent's own", (event) => {
          const isEnd = event.origin === "SYSTEM_EVENT" && event.event_type === "turn.completed";
          return isEnd && event.turn_id !== sent.turnId;
        });
        expect(reported.seq).toBeGreaterThan(request.seq);
        expect(existsSync(join(watched.folder, "sub.txt"))).toBe(true);
        expect(await resolutionOf(watched, request)).toMatchObject({ outcome: "answered" });
      },
    );
  }

  verifies(
    "REGISTER",
    "a hook and a tool of a client are listed, refused to others over HTTP, fail, are cancelled by an interrupt, lost by SIGKILL",
    async () => {
      using watched = await e2e().session();
      const client = connect({ url: e2e().url, token: ADMIN_KEY, onError: () => {} });
      /** What the page does with the next call; each one is told when it has been asked. */
      let respond: () => Promise<JsonObject> = async () => ({});
      client.session(watched.session.id).serve({
        hooks: { PreToolUse: [{ matcher: "Bash", callback: () => respond() }] },
        mcpServers: {
          page: page(async (message) => ({ jsonrpc: "2.0", id: message.id, ...(await respond()) })),
        },
      });
      await watched.first("registration", (event) => event.event_type === "registration.changed");
      const never = () => new Promise<JsonObject>(() => {});
      for (const [text, kind, allows] of [
        ["hooked", "hook", false],
        ["echo", "mcp", true],
      ] as const) {
        const asked = async () => {
          const before = watched.all("request.opened").length;
          const sent = watched.send(text);
          if (allows) await (await requestOf(watched, "permission")).allow();
          const isOurs = () =>
            watched
              .all("request.opened")
              .slice(before)
              .find(({ payload }) => {
                const { message } = payload.request;
                return (
                  payload.kind === kind &&
                  (kind === "hook" || (isJsonObject(message) && message.method === "tools/call"))
                );
              });
          await watched.first(`a ${kind}`, () => isOurs() !== undefined);
          const request = isOurs()?.payload;
          if (request === undefined) throw new Error("it was there a moment ago");
          return { sent, request };
        };
        // Fails: the CLI goes on as if there were no hook; a tool's error is the model's to read.
        respond = async () => {
          throw new Error("the page is broken");
        };
        const failed = await asked();
        if (!allows) await (await requestOf(watched, "permission")).allow();
        expect(await failed.sent).toMatchObject({
          outcome: "completed",
          text: expect.stringContaining(allows ? "the page is broken" : "so:"),
        });
        respond = never;
        const open = await asked();
        expect(await listedRequests(e2e(), watched)).toEqual([
          expect.objectContaining({ request_id: open.request.request_id, kind, owner: "e2eadmin" }),
        ]);
        const body = kind === "hook" ? {} : { mcp_response: { jsonrpc: "2.0", id: 1, result: {} } };
        const { request_id } = open.request;
        expect((await postAnswer(e2e(), watched, { request_id }, body)).status).toBe(403);
        await watched.session.interrupt();
        expect(await open.sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
        expect(await resolutionOf(watched, open.request)).toEqual({ request_id, outcome: "cancelled" });
        const lost = await asked();
        const pid = watched.pid();
        process.kill(pid, "SIGKILL");
        expect(await lost.sent).toMatchObject({ outcome: "failed", reason: "agent_exited" });
        expect(await isGone(pid)).toBe(true);
        expect(await resolutionOf(watched, lost.request)).toEqual({
          request_id: lost.request.request_id,
          outcome: "lost",
        });
      }
      client.close();
    },
  );
});
