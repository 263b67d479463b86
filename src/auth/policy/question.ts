import type { RequestKind } from "../../protocol/events.ts";
import { isJsonObject, type JsonObject, stringField } from "../../protocol/json.ts";
import type { PolicyQuestion } from "../../protocol/policy.ts";

/** A control_request of the agent, as a session knows it. */
export interface AgentQuestion {
  readonly kind: RequestKind;
  /** The CLI's own `request` object. */
  readonly request: JsonObject;
  readonly mode: string | null;
  readonly version: string | null;
}

/** What a policy has to know of a request of the agent that works in `cwd` (absolute, its links resolved). */
export function questionOf({ kind, request, mode, version }: AgentQuestion, cwd: string): PolicyQuestion {
  // The agent's own word that only a person may answer; it cannot be taken away by a rule. `server_policy_ask_only` is false where
  // something other than the default prompt asked for a person.
  const reserved = request.requires_user_interaction === true || request.server_policy_ask_only === false;
  return {
    kind,
    tool_name: stringField(request, "tool_name") ?? "",
    input: isJsonObject(request.input) ? request.input : {},
    cwd,
    mode,
    version,
    ...(reserved && { requires_person: true }),
  };
}
