import type { OpenRequest, RequestKind } from "./events.ts";
import { isJsonObject, stringField } from "./json.ts";

/** What sort of answer a control_request of the CLI waits for (spec/claude-protocol 3.2). */
export function requestKind(request: Readonly<Record<string, unknown>>): RequestKind {
  switch (request.subtype) {
    case "can_use_tool":
      if (request.tool_name === "AskUserQuestion") return "question";
      return request.tool_name === "ExitPlanMode" ? "plan" : "permission";
    case "hook_callback":
      return "hook";
    case "mcp_message":
      return "mcp";
    case "elicitation":
      return "elicitation";
    case "request_user_dialog":
      return "dialog";
    default:
      return "other";
  }
}

/** One question of AskUserQuestion, as far as the CLI filled it in. */
export interface Question {
  readonly question: string;
  readonly header: string | undefined;
  readonly multiSelect: boolean;
  readonly options: readonly { readonly label: string; readonly description: string | undefined }[];
}

/** The questions of a request of kind `question`; empty for any other. */
export function questionsOf(request: OpenRequest): readonly Question[] {
  const input = request.request.input;
  const list = isJsonObject(input) && Array.isArray(input.questions) ? input.questions : [];
  return list.filter(isJsonObject).map((item) => ({
    question: stringField(item, "question") ?? "",
    header: stringField(item, "header"),
    multiSelect: item.multiSelect === true,
    options: (Array.isArray(item.options) ? item.options : []).map((option: unknown) => ({
      label: stringField(option, "label") ?? "",
      description: stringField(option, "description"),
    })),
  }));
}
