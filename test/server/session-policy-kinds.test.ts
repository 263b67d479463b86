import { expect } from "vitest";
import type { Verdict } from "../../src/protocol/policy.ts";
import type { Decide } from "../../src/sessions/port.ts";
import { ACTOR, answer, openSessionHost, query, type Watched, watchSession } from "../kit/session-host.ts";
import { verifies } from "../kit/verifies.ts";

const says =
  (verdict: Partial<Verdict>): Decide =>
  () => ({ effect: "ask", decided_by: "policy:tenant/rule-1", approvers: 1, ...verdict });
const opened = async (watched: Watched): Promise<string> =>
  String((await watched.first((event) => event.event_type === "request.opened")).payload.request_id);
const resolved = (watched: Watched) => watched.first((event) => event.event_type === "request.resolved");

const ASKED = [
  [{ subtype: "can_use_tool", tool_name: "Bash", input: {} }, { response: { behavior: "deny" } }],
  [{ subtype: "can_use_tool", tool_name: "ExitPlanMode", input: {} }, { response: { behavior: "deny" } }],
  [{ subtype: "can_use_tool", tool_name: "AskUserQuestion", input: {} }, { response: { behavior: "deny" } }],
  [{ subtype: "elicitation", message: "Name?", mode: "form" }, { response: { action: "decline" } }],
  // The fake agent only: no dialog of a real CLI could be provoked with the scripted model (PROTOCOL 5.4 has what was tried).
  [{ subtype: "request_user_dialog", dialog_kind: "x" }, { subtype: "error" }],
  [{ subtype: "of_a_later_version" }, { subtype: "error" }],
] as const;
/** Its decline carries no text. */
const ELICITATION = 3;

verifies("POLICY", "no is said to the agent in the words of each kind, by a rule and by an expiry", async () => {
  const verdicts = [
    { effect: "deny", message: "not here" },
    { effect: "ask", expire: { after_ms: 10, effect: "deny" } },
  ] as const;
  for (const verdict of verdicts) {
    await using host = await openSessionHost({}, {}, { decide: says(verdict) });
    const session = await host.create();
    using watched = watchSession(session);
    for (const [index, [request, told]] of ASKED.entries()) {
      const turn = await session.turn(query(`!request ${JSON.stringify(request)}`), ACTOR);
      expect(await turn.ended).toMatchObject({ outcome: "completed" });
      const result = await watched.first(
        (event) => event.event_type === "result" && watched.of("result").indexOf(event) === index,
      );
      expect(JSON.parse(String(result.payload.result))).toMatchObject([told]);
      if (verdict.effect === "deny" && index !== ELICITATION) expect(result.payload.result).toContain("not here");
    }
    expect(host.reports).toEqual([]);
  }
});

verifies(
  "POLICY",
  "what a client serves is stopped by a rule that denies it; nothing else answers it, times it or wants two people",
  async () => {
    const call = { subtype: "mcp_message", server_name: "page", message: { jsonrpc: "2.0", id: 1, method: "ping" } };
    const asks = query(`!request ${JSON.stringify(call)}`);
    const connected = { ...ACTOR, connection_id: "c1" };
    await using host = await openSessionHost({}, {}, { decide: says({ effect: "deny", message: "not here" }) });
    const session = await host.create();
    using watched = watchSession(session);
    await session.register(connected, { mcp_servers: ["page"] });
    await session.turn(asks, ACTOR);
    expect((await resolved(watched)).payload).toMatchObject({
      outcome: "answered",
      decision: { error: "not here" },
      decided_by: "policy:tenant/rule-1",
    });
    const verdicts = [{ effect: "allow" }, { approvers: 2, expire: { after_ms: 1, effect: "deny" } }] as const;
    for (const verdict of verdicts) {
      await using open = await openSessionHost({}, {}, { decide: says(verdict) });
      const free = await open.create();
      using reader = watchSession(free);
      await free.register(connected, { mcp_servers: ["page"] });
      const turn = await free.turn(asks, ACTOR);
      const id = await opened(reader);
      expect(free.standing().openRequests[0]).not.toHaveProperty("expires_at_ms");
      await free.command(answer(id, { mcp_response: { jsonrpc: "2.0", id: 1, result: {} } }), connected);
      expect(await turn.ended).toMatchObject({ outcome: "completed" });
      expect((await resolved(reader)).payload).toMatchObject({ outcome: "answered", decided_by: ACTOR.id });
    }
  },
);
