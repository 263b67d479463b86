import { expect } from "vitest";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import type { Session } from "../../src/sessions/port.ts";
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

const OTHER = { id: "key-b" };

async function opened(watched: Watched, nth = 0): Promise<{ id: string; request: JsonObject }> {
  const event = await watched.first(
    (item) => item.event_type === "request.opened" && watched.of("request.opened").indexOf(item) === nth,
  );
  return {
    id: String(event.payload.request_id),
    request: isJsonObject(event.payload.request) ? event.payload.request : {},
  };
}

/** What the fake agent says it was told, as the text of its last assistant line. */
async function told(watched: Watched): Promise<string> {
  const line = await watched.first(
    (event) => event.event_type === "assistant" && JSON.stringify(event.payload).includes("behavior"),
  );
  return JSON.stringify(line.payload);
}

verifies(
  "P6-ONE-ANSWER",
  "known bug 26: two answers within a millisecond, 100 rounds: one wins, the loser is told who, one line reaches the agent",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    for (let round = 0; round < 100; round++) {
      const turn = await session.turn(query("!ask"), ACTOR);
      const { id } = await opened(watched, round);
      const [first, second] = round % 2 === 0 ? [ACTOR, OTHER] : [OTHER, ACTOR];
      const results = await Promise.allSettled([
        session.command(answer(id, { behavior: "allow" }), first),
        session.command(answer(id, { behavior: "deny", message: "no" }), second),
      ]);
      expect(results.map((result) => result.status)).toEqual(["fulfilled", "rejected"]);
      expect(results[1]).toMatchObject({
        reason: {
          code: "request_already_answered",
          details: { decided_by: first.id, decision: { behavior: "allow" } },
        },
      });
      expect(await turn.ended).toMatchObject({ outcome: "completed" });
    }
    await watched.first(
      (event) => event.event_type === "turn.completed" && watched.of("turn.completed").indexOf(event) === 99,
    );
    expect(watched.of("request.resolved").map((event) => event.payload.outcome)).toEqual(Array(100).fill("answered"));
    expect(watched.of("control_response").filter((event) => event.origin === "USER_EVENT")).toHaveLength(100);
  },
  60_000,
);

verifies(
  "P6-ONE-ANSWER",
  "a prompt is state: a later client sees it, nobody's silence answers it, and it is answered after a new subscription",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using before = watchSession(session);
    const turn = await session.turn(query("!question"), ACTOR);
    const { id, request } = await opened(before);
    before[Symbol.dispose]();
    const standing = session.standing();
    expect(standing).toMatchObject({ state: "requires_action", openRequests: [{ request_id: id, kind: "question" }] });
    using late = watchSession(session, standing.head);
    const input = isJsonObject(request.input) ? request.input : {};
    const questions = Array.isArray(input.questions) ? input.questions.filter(isJsonObject) : [];
    const answers = Object.fromEntries(questions.map((item) => [String(item.question), "free text"]));
    await session.command(answer(id, { behavior: "allow", updatedInput: { ...input, answers } }), ACTOR);
    expect(await turn.ended).toMatchObject({ outcome: "completed" });
    expect(await told(late)).toContain("free text");
    expect(late.of("request.opened")).toEqual([]);
  },
);

verifies(
  "REQUEST-VALID",
  "an answer that does not fit is refused by name, reaches nobody, and the request stays open",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    const turn = await session.turn(query("!ask"), ACTOR);
    const { id, request } = await opened(watched);
    const bad: JsonObject[] = [
      {},
      { yes: true },
      { behavior: "maybe" },
      { behavior: "deny" },
      { behavior: "deny", message: "" },
      { behavior: "allow", updatedInput: "x" },
      { behavior: "allow", updatedPermissions: "all" },
      {
        behavior: "allow",
        updatedPermissions: [{ type: "setMode", mode: "bypassPermissions", destination: "session" }],
      },
    ];
    for (const response of bad)
      expect(await problemOf(session.command(answer(id, response), ACTOR))).toBe("invalid_answer");
    expect(session.standing().openRequests).toHaveLength(1);
    const rule = { type: "addRules", rules: [{ toolName: "Bash" }], behavior: "allow", destination: "localSettings" };
    await session.command(answer(id, { behavior: "allow", updatedPermissions: [rule] }), ACTOR);
    await turn.ended;
    const sent = watched.of("control_response").find((event) => event.origin === "USER_EVENT");
    expect(sent?.payload).toMatchObject({
      response: {
        response: { behavior: "allow", updatedInput: request.input, updatedPermissions: [{ destination: "session" }] },
      },
    });
  },
);

verifies("REQUEST-VALID", "a question is answered by its own questions only", async () => {
  await using host = await openSessionHost();
  const session = await host.create();
  using watched = watchSession(session);
  await session.turn(query("!question"), ACTOR);
  const { id, request } = await opened(watched);
  const input = isJsonObject(request.input) ? request.input : {};
  for (const answers of [undefined, {}, { "What else?": "x" }, []]) {
    const response = { behavior: "allow", updatedInput: { ...input, ...(answers && { answers }) } };
    expect(await problemOf(session.command(answer(id, response), ACTOR))).toBe("invalid_answer");
  }
  await session.command(answer(id, { behavior: "deny", message: "not now" }), ACTOR);
  expect(await told(watched)).toContain("not now");
});

verifies(
  "REQUEST-SETTLED",
  "known bugs 25, 26: answers to unknown, foreign, withdrawn and lost requests are refused, 1000 times, and the session goes on",
  async () => {
    await using host = await openSessionHost();
    const [session, neighbour] = await Promise.all([host.create(), host.create()]);
    using watched = watchSession(session);
    using other = watchSession(neighbour);
    await neighbour.turn(query("!ask"), ACTOR);
    const foreign = await opened(other);
    const cancelled = await session.turn(query("!cancel"), ACTOR);
    await cancelled.ended;
    const withdrawn = await opened(watched);
    expect(await problemOf(session.command(answer(foreign.id, { behavior: "allow" }), ACTOR))).toBe("request_unknown");
    expect(await problemOf(session.command(answer(withdrawn.id, { behavior: "allow" }), ACTOR))).toBe(
      "request_settled",
    );
    const many = Array.from({ length: 1000 }, (_, index) =>
      problemOf(session.command(answer(`none-${index}`, { behavior: "allow" }), ACTOR)),
    );
    expect(new Set(await Promise.all(many))).toEqual(new Set(["request_unknown"]));
    const next = await session.turn(query("still there"), ACTOR);
    expect(await next.ended).toMatchObject({ outcome: "completed" });
    expect(neighbour.standing().openRequests).toHaveLength(1);
  },
);

verifies(
  "REQUEST-SETTLED",
  "requests of a process that dies are lost, in the CLI's words too, and stay refused after a restart",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    const turn = await session.turn(query("!ask"), ACTOR);
    const { id } = await opened(watched);
    process.kill(pidOf(session), "SIGKILL");
    expect(await turn.ended).toMatchObject({ outcome: "failed", reason: "agent_exited" });
    const resolved = await watched.first((event) => event.event_type === "request.resolved");
    expect(resolved.payload).toMatchObject({ request_id: id, outcome: "lost" });
    const cancel = watched.of("control_cancel_request")[0];
    expect(cancel).toMatchObject({ source: "broker", payload: { request_id: id } });
    await using again = await host.reopen();
    const same = await again.sessions.find(session.id, "default");
    expect(await problemOf(same?.command(answer(id, { behavior: "allow" }), ACTOR) ?? Promise.resolve())).toBe(
      "request_settled",
    );
  },
);

verifies("CONTROL-IDS", "a control request whose agent dies is answered with an error by the broker", async () => {
  await using host = await openSessionHost({ silentInitialize: true }, { startTimeoutMs: 300 });
  const session = await host.create();
  using watched = watchSession(session);
  const command = control("get_context_usage");
  await session.command(command, ACTOR);
  const answered = await watched.first(
    (event) => event.event_type === "control_response" && event.command_id === command.id,
  );
  expect(answered).toMatchObject({ source: "broker", payload: { response: { subtype: "error" } } });
  expect(session.view().state).toBe("failed");
});

function pidOf(session: Session): number {
  const { pid } = session.view().agent;
  if (pid === undefined) throw new Error("the session has no process");
  return pid;
}
