import { expect } from "vitest";
import type { Verdict } from "../../src/protocol/policy.ts";
import type { AuditNote, Decide } from "../../src/sessions/port.ts";
import {
  ACTOR,
  answer,
  control,
  openSessionHost,
  problemOf,
  query,
  type Watched,
  watchSession,
} from "../kit/session-host.ts";
import { verifies } from "../kit/verifies.ts";

const SECOND = { id: "key-b", roles: ["approver"] as const };
const says =
  (verdict: Partial<Verdict>): Decide =>
  () => ({ effect: "ask", decided_by: "policy:tenant/rule-1", approvers: 1, ...verdict });

const opened = async (watched: Watched): Promise<string> =>
  String((await watched.first((event) => event.event_type === "request.opened")).payload.request_id);
const resolved = (watched: Watched) => watched.first((event) => event.event_type === "request.resolved");

verifies(
  "POLICY",
  "a rule that allows or denies answers before anybody is asked, says which rule it was, and is noted for the audit",
  async () => {
    for (const effect of ["allow", "deny"] as const) {
      const notes: AuditNote[] = [];
      await using host = await openSessionHost({}, {}, { decide: says({ effect, message: "not here" }), notes });
      const session = await host.create();
      using watched = watchSession(session);
      const turn = await session.turn(query("!ask"), ACTOR);
      expect(await turn.ended).toMatchObject({ outcome: "completed" });
      const behaviour = effect === "allow" ? { behavior: "allow" } : { behavior: "deny", message: "not here" };
      expect((await resolved(watched)).payload).toMatchObject({
        outcome: "answered",
        decided_by: "policy:tenant/rule-1",
        decision: behaviour,
      });
      expect(watched.of("session.state").map((event) => event.payload.state)).not.toContain("requires_action");
      expect(notes).toMatchObject([
        {
          kind: "policy",
          actor: { id: "policy:tenant/rule-1" },
          outcome: "answered",
          shown: expect.stringContaining("command"),
        },
      ]);
    }
  },
);

verifies(
  "POLICY",
  "two approvers: one person cannot approve twice, the second must approve the same, either may deny",
  async () => {
    const notes: AuditNote[] = [];
    await using host = await openSessionHost({}, {}, { decide: says({ approvers: 2 }), notes });
    const session = await host.create();
    using watched = watchSession(session);
    const turn = await session.turn(query("!ask"), ACTOR);
    const id = await opened(watched);
    await session.command(answer(id, { behavior: "allow" }), ACTOR);
    expect((await watched.first((event) => event.event_type === "request.approved")).payload).toEqual({
      request_id: id,
      by: ACTOR.id,
      approvals_needed: 2,
    });
    expect(session.view().state).toBe("requires_action");
    expect(await problemOf(session.command(answer(id, { behavior: "allow" }), ACTOR))).toBe("request_already_answered");
    expect(
      await problemOf(
        session.command(answer(id, { behavior: "allow", updatedInput: { command: "rm -rf /" } }), SECOND),
      ),
    ).toBe("invalid_answer");
    await session.command(answer(id, { behavior: "allow" }), SECOND);
    expect(await turn.ended).toMatchObject({ outcome: "completed" });
    expect((await resolved(watched)).payload).toMatchObject({ outcome: "answered", decided_by: SECOND.id });
    expect(notes.map((note) => note.outcome)).toEqual(["approved", "answered"]);
    const refused = await session.turn(query("!ask"), ACTOR);
    const next = await watched.first(
      (event) => event.event_type === "request.opened" && event.payload.request_id !== id,
    );
    await session.command(answer(String(next.payload.request_id), { behavior: "deny", message: "no" }), SECOND);
    expect(await refused.ended).toMatchObject({ outcome: "completed" });
  },
);

verifies("POLICY", "an expiry denies, never allows, and the late answer is refused; leave keeps waiting", async () => {
  await using host = await openSessionHost({}, {}, { decide: says({ expire: { after_ms: 100, effect: "deny" } }) });
  const session = await host.create();
  using watched = watchSession(session);
  const turn = await session.turn(query("!ask"), ACTOR);
  const id = await opened(watched);
  expect((await resolved(watched)).payload).toMatchObject({
    outcome: "expired",
    decision: { behavior: "deny" },
    decided_by: "policy:expiry",
  });
  expect(await turn.ended).toMatchObject({ outcome: "completed" });
  expect(await problemOf(session.command(answer(id, { behavior: "allow" }), ACTOR))).toBe("request_settled");
  await using patient = await openSessionHost({}, {}, { decide: says({ expire: { after_ms: 1, effect: "leave" } }) });
  const waiting = await patient.create();
  using reader = watchSession(waiting);
  await waiting.turn(query("!ask"), ACTOR);
  await opened(reader);
  expect(waiting.standing().openRequests[0]?.expires_at_ms).toBeUndefined();
});

verifies(
  "REQUEST-VALID",
  "changing modes or rules by an answer takes an admin, or a policy that grants it",
  async () => {
    const rule = { type: "addRules", rules: [{ toolName: "Bash" }], behavior: "allow", destination: "localSettings" };
    const widening = { behavior: "allow", updatedPermissions: [rule] };
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    await session.turn(query("!ask"), ACTOR);
    expect(await problemOf(session.command(answer(await opened(watched), widening), SECOND))).toBe("forbidden");
    await session.command(answer(await opened(watched), widening), ACTOR);
    await using granting = await openSessionHost({}, {}, { decide: says({ grants: { add_rules: true } }) });
    const other = await granting.create();
    using reader = watchSession(other);
    await other.turn(query("!ask"), ACTOR);
    const id = await opened(reader);
    const mode = { type: "setMode", mode: "acceptEdits", destination: "session" };
    expect(await problemOf(other.command(answer(id, { behavior: "allow", updatedPermissions: [mode] }), SECOND))).toBe(
      "forbidden",
    );
    await other.command(answer(id, widening), SECOND);
    const sent = await reader.first(
      (event) => event.event_type === "control_response" && event.origin === "USER_EVENT",
    );
    expect(JSON.stringify(sent.payload)).toContain('"destination":"session"');
  },
);

verifies(
  "CONTROL-IDS",
  "a control request that the agent does not answer in time ends with an error by the broker",
  async () => {
    await using host = await openSessionHost({ silentInitialize: true }, { controlTimeoutMs: 100 });
    const session = await host.create();
    using watched = watchSession(session);
    const command = control("get_context_usage");
    await session.command(command, ACTOR);
    const answered = await watched.first(
      (event) => event.event_type === "control_response" && event.command_id === command.id,
    );
    expect(answered).toMatchObject({
      source: "broker",
      payload: { response: { subtype: "error", error: expect.stringContaining("timed_out") } },
    });
  },
);

verifies(
  "POLICY",
  "an approver cannot change the input into what a policy denies, or wants two people for",
  async () => {
    const byCommand: Decide = ({ request }) => {
      const text = JSON.stringify(request.input);
      if (text.includes("rm")) return { effect: "deny", decided_by: "policy:tenant/no-rm", approvers: 1 };
      return { effect: "ask", decided_by: "policy:tenant/push", approvers: text.includes("push") ? 2 : 1 };
    };
    await using host = await openSessionHost({}, {}, { decide: byCommand });
    const session = await host.create();
    using watched = watchSession(session);
    await session.turn(query("!ask"), ACTOR);
    const id = await opened(watched);
    for (const command of ["rm -rf x", "git push"]) {
      expect(
        await problemOf(session.command(answer(id, { behavior: "allow", updatedInput: { command } }), ACTOR)),
      ).toBe("forbidden");
    }
    await session.command(answer(id, { behavior: "allow", updatedInput: { command: "touch two" } }), ACTOR);
    expect((await resolved(watched)).payload).toMatchObject({ outcome: "answered" });
  },
);
