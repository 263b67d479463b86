import type { OpenRequest } from "../protocol/events.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Actor } from "./port.ts";
import type { Work } from "./work.ts";

/** An approver may change the input, but not into something that a policy denies or wants two people for. @throws BrokerError forbidden */
export function refuseByPolicy(work: Work, open: OpenRequest, line: JsonObject, decision: JsonObject): void {
  const changed = inputText(line);
  if (decision.behavior !== "allow" || changed === JSON.stringify(open.request.input ?? {})) return;
  const { permissionMode, version } = work.state;
  const request = { ...open.request, input: JSON.parse(changed) };
  const verdict = work.decide({ kind: open.kind, request, mode: permissionMode, version });
  const needsTwo = verdict.effect === "ask" && verdict.approvers === 2 && open.approvals_needed === undefined;
  if (verdict.effect !== "deny" && !needsTwo) return;
  const what = needsTwo ? "wants two people for it" : "denies it";
  throw new BrokerError(
    "forbidden",
    `updatedInput: ${verdict.decided_by} ${what}; answer with an input that it allows, or deny.`,
    {
      details: { field: "payload.response.response.updatedInput", decided_by: verdict.decided_by },
    },
  );
}

/** True when this allow is the first of two that a policy demands. */
export function needsAnother(open: OpenRequest, line: JsonObject, decision: JsonObject, actor: Actor): boolean {
  if (open.approvals_needed === undefined || decision.behavior !== "allow") return false;
  const first = open.approvals?.[0];
  if (first === undefined) return true;
  if (first.by === actor.id) {
    const details = { decided_by: first.by, approvals_needed: open.approvals_needed };
    throw new BrokerError("request_already_answered", "You have approved this; a second person must.", { details });
  }
  if (inputText(line) !== first.input) {
    const details = { field: "payload.response.response.updatedInput" };
    throw new BrokerError(
      "invalid_answer",
      `updatedInput: differs from what ${first.by} approved; approve the same, or deny.`,
      { details },
    );
  }
  return false;
}

/** What an allow would run, as JSON. */
export function inputText(line: JsonObject): string {
  const outer = isJsonObject(line.response) ? line.response : {};
  const inner = isJsonObject(outer.response) ? outer.response : {};
  return JSON.stringify(inner.updatedInput ?? {});
}
