import fc from "fast-check";
import { expect } from "vitest";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import type { Verdict } from "../../src/protocol/policy.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { ASK_PEOPLE, type Decide } from "../../src/sessions/port.ts";
import { newState, restoredState, type Snapshot, type State, snapshotOf } from "../../src/sessions/state.ts";
import { type Signal, step } from "../../src/sessions/step.ts";
import { createJudge } from "../kit/session-judge.ts";
import { verifies } from "../kit/verifies.ts";

/** A random thing that happens; `pick` chooses among what the session knows at that moment. */
interface Happening {
  readonly kind: (typeof KINDS)[number];
  readonly pick: number;
}

const KINDS = [
  "query",
  "query-now",
  "control",
  "interrupt",
  "interrupt-all",
  "withdraw",
  "answer",
  "answer-bad",
  "answer-deny",
  "answer-form",
  "answer-dialog",
  "spawned",
  "initialized",
  "init",
  "init-named",
  "echo",
  "preview",
  "assistant",
  "ask",
  "ask-hook",
  "ask-form",
  "ask-dialog",
  "cancel",
  "result",
  "result-own",
  "result-named",
  "result-error",
  "lifecycle-cancelled",
  "control-answer",
  "noise",
  "dropped",
  "register",
  "unregister",
  "owner-due",
  "request-due",
  "control-due",
  "ask-served",
  "exit-clean",
  "exit-crash",
  "recovered",
  "written",
  "hibernate",
  "wake-due",
  "silent",
  "stall-due",
  "rerun-due",
  "away",
  "quit",
  "end",
] as const;

const line = (message: JsonObject): Signal => ({
  type: "output",
  lineLimitBytes: 100,
  lines: [{ kind: "line", bytes: Buffer.from(JSON.stringify(message)), message }],
});
/** Which messages the dead process had: cannot be said, none, or the first. */
const takenOf = (state: State, pick: number) =>
  [undefined, new Set<string>(), new Set(state.turns.slice(0, 1).map((turn) => turn.turnId))][pick % 3];
const exited = (code: number, state: State, pick: number): Signal => ({
  type: "exited",
  exit: { code, signal: null, how: "exited", stderrTail: "" },
  taken: takenOf(state, pick),
  continues: pick % 4 === 0,
});
const at = <T>(items: readonly T[], pick: number): T | undefined => items[pick % Math.max(1, items.length)];

/** Keeps what happened, and makes signals that fit (or deliberately do not fit) the state. */
function createHistory() {
  let ids = 0;
  const newId = () => `id-${++ids}`;
  const asked: string[] = [];
  const command = (event_type: string, payload: JsonObject, extra: JsonObject = {}): Signal =>
    ({
      type: "command",
      actor: { id: "key-1", roles: ["operator"] },
      command: { id: newId(), event_type, payload, ...extra },
    }) as unknown as Signal;
  const control = (request: JsonObject) =>
    command("control_request", { type: "control_request", request_id: newId(), request });
  const query = (delivery: string) =>
    command("query", { type: "user", message: { role: "user", content: "hi" } }, { delivery });
  const answer = (response: JsonObject, pick: number) =>
    command("control_response", {
      type: "control_response",
      response: { subtype: "success", request_id: at(asked, pick) ?? "none", response },
    });
  const ask = (request: JsonObject) => {
    const request_id = newId();
    asked.push(request_id);
    return line({ type: "control_request", request_id, request });
  };

  const signal = (state: State, { kind, pick }: Happening): Signal | undefined => {
    const turn = at(state.turns, pick)?.turnId ?? "none";
    const alive = state.phase.name === "live" || state.phase.name === "stopping";
    switch (kind) {
      case "query":
        return query("after_turn");
      case "query-now":
        return query("at_once");
      case "control":
        return control({ subtype: "set_model", model: "m" });
      case "interrupt":
        return control({ subtype: "interrupt" });
      case "interrupt-all":
        return control({ subtype: "interrupt", cancel_queued: true });
      case "withdraw":
        return control({ subtype: "cancel_async_message", message_uuid: at(state.queue, pick)?.turnId ?? turn });
      case "answer":
        return answer({ behavior: "allow" }, pick);
      case "answer-deny":
        return answer({ behavior: "deny", message: "no" }, pick);
      case "answer-form":
        return answer({ action: (["accept", "decline", "cancel"] as const)[pick % 3] ?? "cancel", content: {} }, pick);
      case "answer-dialog":
        return answer(
          pick % 2 === 0 ? { behavior: "completed", result: { n: pick } } : { behavior: "cancelled" },
          pick,
        );
      case "answer-bad":
        return answer({ yes: true }, pick);
      case "spawned":
        return state.phase.name === "starting"
          ? { type: "spawned", pid: 7, process: { pid: 7, startTime: "1" }, resumed: false }
          : undefined;
      case "initialized": {
        if (state.phase.name !== "starting") return undefined;
        return line({
          type: "control_response",
          response: {
            subtype: pick % 9 === 0 ? "error" : "success",
            request_id: state.phase.initializeId,
            response: {},
          },
        });
      }
      case "exit-clean":
        return alive || state.phase.name === "starting" ? exited(0, state, pick) : undefined;
      case "exit-crash":
        return alive || state.phase.name === "starting" ? exited(1, state, pick) : undefined;
      case "register": {
        const registration = { hooks: { Stop: [{ hookCallbackIds: ["h"] }] }, mcp_servers: [`s${pick % 2}`] };
        return { type: "register", owner: `o${pick % 3}`, connectionId: `c${pick}`, registration };
      }
      case "unregister":
        return { type: "unregister", connectionId: at(state.owners, pick)?.connectionId ?? "none" };
      case "owner-due": {
        const owner = at(state.owners, pick);
        return { type: "owner_due", owner: owner?.id ?? "none", awaySinceMs: owner?.awaySinceMs };
      }
      case "request-due":
        return { type: "request_due", requestId: at(state.requests, pick)?.request_id ?? "none" };
      case "control-due":
        return { type: "control_due", requestId: at(state.pending, pick)?.requestId ?? "none" };
      case "recovered":
        return { type: "recovered", jumped: pick % 2 === 0, taken: takenOf(state, pick), continues: pick % 4 === 0 };
      case "written":
        return { type: "written", id: state.stdinId - (pick % 3) };
      case "hibernate":
        return { type: "hibernate" };
      case "wake-due":
        return { type: "wake_due" };
      case "silent":
        return { type: "silent", forMs: 1000 };
      case "stall-due":
        return { type: "stall_due", turnId: turn };
      case "rerun-due":
        return { type: "rerun_due" };
      case "away":
        return { type: "away", isAway: pick % 2 === 0 };
      case "quit":
        return { type: "quit" };
      case "end":
        return pick % 5 === 0 ? { type: "end" } : undefined;
      default:
        return alive ? agentLine(state, kind, pick, turn) : undefined;
    }
  };

  const agentLine = (state: State, kind: Happening["kind"], pick: number, turn: string): Signal | undefined => {
    switch (kind) {
      case "init":
        return line({ type: "system", subtype: "init", session_id: `cli-${pick % 3}` });
      case "init-named":
        return line({ type: "system", subtype: "init", session_id: "cli-1", user_message_uuids: [turn] });
      case "echo":
        return line({ type: "user", isReplay: true, uuid: turn, message: { role: "user", content: "hi" } });
      case "preview":
        return line({
          type: "stream_event",
          event: { type: "content_block_delta", delta: { type: "text_delta", text: "x" } },
        });
      case "assistant":
        return line({ type: "assistant", message: { content: [] } });
      case "ask":
        return ask({ subtype: "can_use_tool", tool_name: "Bash", input: { command: "touch x", n: pick } });
      case "ask-hook":
        return ask({ subtype: "hook_callback", callback_id: "1" });
      case "ask-form":
        return ask({ subtype: "elicitation", mcp_server_name: "files", message: "Which?", input: { n: pick } });
      case "ask-dialog":
        return ask({ subtype: "request_user_dialog", dialog_kind: "choice", payload: {}, input: { n: pick } });
      case "ask-served":
        return ask({
          subtype: pick % 2 === 0 ? "hook_callback" : "mcp_message",
          callback_id: `o${pick % 3}:h`,
          server_name: `s${pick % 2}`,
        });
      case "cancel":
        return line({ type: "control_cancel_request", request_id: at(asked, pick) ?? "none" });
      case "result":
        return line({ type: "result", subtype: "success", is_error: false, total_cost_usd: 0.5 });
      case "result-own":
        return line({ type: "result", subtype: "success", is_error: false, origin: { kind: "task-notification" } });
      case "result-named":
        return line({
          type: "result",
          subtype: "success",
          is_error: false,
          user_message_uuids: state.turns.slice(0, 1 + (pick % 2)).map((item) => item.turnId),
        });
      case "result-error":
        return line({
          type: "result",
          subtype: "success",
          is_error: true,
          api_error_status: 529,
          result: "overloaded",
        });
      case "lifecycle-cancelled":
        return line({ type: "command_lifecycle", state: "cancelled", command_uuid: turn });
      case "control-answer":
        return line({
          type: "control_response",
          response: {
            subtype: "success",
            request_id: at(state.pending, pick)?.requestId ?? "none",
            response: { cancelled: true },
          },
        });
      case "noise":
        return { type: "output", lineLimitBytes: 100, lines: [{ kind: "noise", bytes: Buffer.from([0xff, 0x41]) }] };
      case "dropped":
        return { type: "output", lineLimitBytes: 100, lines: [{ kind: "dropped", bytes: 101 }] };
      default:
        return undefined;
    }
  };
  return { signal, newId };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !ArrayBuffer.isView(value) && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(deepFreeze);
  }
  return value;
}

/** By the tool's input alone, so that it is as pure as a real one: some are allowed, denied, need two, or expire. */
const VERDICTS: readonly Verdict[] = [
  { effect: "ask", decided_by: "policy:default", approvers: 1 },
  { effect: "ask", decided_by: "policy:default", approvers: 2 },
  { effect: "ask", decided_by: "policy:default", approvers: 1, expire: { after_ms: 0, effect: "deny" } },
  { effect: "allow", decided_by: "policy:tenant/a", approvers: 1 },
  { effect: "deny", decided_by: "policy:tenant/d", approvers: 1 },
];
const randomPolicy: Decide = (question) => {
  const { kind, request } = question;
  const verdict = VERDICTS[(isJsonObject(request.input) ? Number(request.input.n) : 0) % VERDICTS.length];
  // PROTOCOL 6.5: no rule allows what nobody can invent the answer of.
  const cannotBeAllowed = kind === "elicitation" || kind === "dialog";
  if (verdict === undefined || (cannotBeAllowed && verdict.effect === "allow")) return ASK_PEOPLE(question);
  return verdict;
};

const happenings = fc.array(fc.record({ kind: fc.constantFrom(...KINDS), pick: fc.nat(100) }), {
  maxLength: 60,
  size: "max",
});

verifies(
  "P3-ONCE",
  "whatever happens in whatever order: every turn ends once, every request is settled once, nothing is written twice",
  () => {
    fc.assert(
      fc.property(happenings, (list) => {
        const history = createHistory();
        const judge = createJudge();
        let state: State = newState("cli-1");
        let now = 1;
        const play = (signal: Signal | undefined) => {
          if (signal === undefined) return;
          if (signal.type === "exited" || signal.type === "recovered") {
            const echoed = state.turns.filter((turn) => turn.echoed).map((turn) => turn.turnId);
            judge.inConversation([...(signal.taken ?? []), ...echoed]);
          }
          try {
            now += 100;
            const out = step(deepFreeze(state), signal, { now, newId: history.newId, decide: randomPolicy });
            judge.outcome(out);
            state = out.state;
            // What another server would go on with is what this one has, but for its clients' connections.
            const stored: Snapshot = JSON.parse(JSON.stringify(snapshotOf(state)));
            const { owners, ...restored } = restoredState(stored, state.seq, state.initialized);
            const { owners: before, ...rest } = state;
            expect(restored).toEqual(rest);
            expect(owners.map((owner) => owner.id)).toEqual(before.map((owner) => owner.id));
          } catch (error) {
            if (!(error instanceof BrokerError)) throw error;
          }
        };
        for (const happening of list) {
          play(history.signal(state, happening));
          // Most starts succeed, or the interesting part would seldom be reached.
          if (state.phase.name !== "starting" || happening.pick % 4 === 0) continue;
          play(history.signal(state, { kind: "spawned", pick: 1 }));
          play(history.signal(state, { kind: "initialized", pick: 1 }));
        }
        play({ type: "end" });
        if (state.phase.name === "stopping") play(exited(0, state, 0));
        expect(state.phase.name).toBe("ended");
        judge.closed();
      }),
      { numRuns: 3000 },
    );
  },
  60_000,
);
