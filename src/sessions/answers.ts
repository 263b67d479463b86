import type { ControlResponse } from "../protocol/commands.ts";
import type { OpenRequest } from "../protocol/events.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import { questionsOf } from "../protocol/requests.ts";
import { ownerAnswerProblem } from "./owners.ts";
import type { Actor } from "./port.ts";

/** A checked answer: the line for the agent, and what everybody may know of the decision. */
export interface CheckedAnswer {
  readonly line: ControlResponse & JsonObject;
  readonly decision: JsonObject;
}

const invalid = (field: string, text: string): BrokerError =>
  new BrokerError("invalid_answer", `payload.response.${field}: ${text} The request is still open; answer again.`, {
    details: { field: `payload.response.${field}` },
  });

/** Holds an answer against its request before the CLI sees it, which gives no second try (spec/claude-protocol 3.2). @throws BrokerError invalid_answer */
export function checkAnswer(open: OpenRequest, answer: ControlResponse, actor?: Actor): CheckedAnswer {
  const { response } = answer;
  const needsDecision = open.kind === "permission" || open.kind === "question" || open.kind === "plan";
  if (response.subtype === "error") {
    if (needsDecision) throw invalid("subtype", "an error is no decision; answer with behavior allow or deny.");
    return {
      line: {
        type: "control_response",
        response: { subtype: "error", request_id: open.request_id, error: response.error },
      },
      decision: { error: response.error },
    };
  }
  const body = response.response ?? {};
  if (needsDecision) return decided(open, body, actor);
  if (open.kind === "elicitation") checkElicitation(body);
  const wrong = open.kind === "hook" || open.kind === "mcp" ? ownerAnswerProblem(open.kind, body) : undefined;
  if (wrong !== undefined) throw invalid("response", wrong);
  return finish(open, body, open.kind === "elicitation" ? { action: body.action } : {});
}

function finish(open: OpenRequest, body: JsonObject, decision: JsonObject): CheckedAnswer {
  return {
    line: { type: "control_response", response: { subtype: "success", request_id: open.request_id, response: body } },
    decision,
  };
}

function decided(open: OpenRequest, body: JsonObject, actor: Actor | undefined): CheckedAnswer {
  if (body.behavior === "deny") {
    const message = stringField(body, "message");
    if (message === undefined || message === "")
      throw invalid("response.message", "deny needs a message for the model.");
    if (body.interrupt !== undefined && typeof body.interrupt !== "boolean")
      throw invalid("response.interrupt", "must be true or false.");
    return finish(open, body, { behavior: "deny", message });
  }
  if (body.behavior !== "allow") throw invalid("response.behavior", 'must be "allow" or "deny".');
  const input = isJsonObject(open.request.input) ? open.request.input : {};
  // The older CLI fails the tool when updatedInput is absent.
  const updatedInput = body.updatedInput ?? input;
  if (!isJsonObject(updatedInput)) throw invalid("response.updatedInput", "must be an object.");
  const answers = open.kind === "question" ? checkQuestionAnswers(open, updatedInput.answers) : undefined;
  const updates =
    body.updatedPermissions === undefined
      ? {}
      : { updatedPermissions: permissionUpdates(open, body.updatedPermissions, actor) };
  return finish(open, { ...body, ...updates, updatedInput }, { behavior: "allow", ...(answers && { answers }) });
}

function checkQuestionAnswers(open: OpenRequest, answers: unknown): JsonObject {
  const field = "response.updatedInput.answers";
  if (!isJsonObject(answers) || Object.keys(answers).length === 0)
    throw invalid(field, "must map each question's text to an answer.");
  const known = questionsOf(open).map((question) => question.question);
  for (const [question, answer] of Object.entries(answers)) {
    if (!known.includes(question))
      throw invalid(field, `"${question.slice(0, 80)}" is not a question of this request.`);
    if (typeof answer !== "string" || answer === "") throw invalid(field, "each answer must be a non-empty string.");
  }
  const missing = known.find((question) => answers[question] === undefined);
  if (missing !== undefined) throw invalid(field, `"${missing.slice(0, 80)}" has no answer.`);
  return answers;
}

const STORED_DESTINATIONS = ["localSettings", "projectSettings", "userSettings"];

/** Rules last for the session: a suggestion echoed as it came would write a settings file into the workspace. */
function permissionUpdates(open: OpenRequest, updates: unknown, actor: Actor | undefined): readonly JsonObject[] {
  if (!Array.isArray(updates) || !updates.every(isJsonObject)) {
    throw invalid("response.updatedPermissions", "must be a list of objects.");
  }
  const widens = actor?.roles?.some((role) => role === "admin" || role === "operator") ?? false;
  const grants = open.grants ?? {};
  return updates.map((update) => {
    const isMode = update.type === "setMode";
    if (isMode && update.mode === "bypassPermissions") {
      throw invalid("response.updatedPermissions", "bypassPermissions cannot be granted by an answer.");
    }
    if (!widens && grants[isMode ? "set_mode" : "add_rules"] !== true) {
      throw new BrokerError(
        "forbidden",
        "updatedPermissions: changing modes or rules takes an admin, or a policy that grants it.",
        {
          details: { field: "payload.response.response.updatedPermissions" },
        },
      );
    }
    const stays = !STORED_DESTINATIONS.includes(String(update.destination)) || grants.stored_rules === true;
    return stays ? update : { ...update, destination: "session" };
  });
}

function checkElicitation(body: JsonObject): void {
  if (!["accept", "decline", "cancel"].includes(String(body.action)))
    throw invalid("response.action", "must be accept, decline or cancel.");
  if (body.content !== undefined && !isJsonObject(body.content))
    throw invalid("response.content", "must be an object.");
}
