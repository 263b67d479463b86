import type { IncomingRequest } from "../client/index.ts";
import { reveal } from "./terminal.ts";

type Input = Readonly<Record<string, unknown>>;

const indent = (text: string): string => text.replaceAll(/^/gm, "    ");
const marked = (mark: string, text: unknown): string =>
  typeof text === "string" ? text.replaceAll(/^/gm, `${mark} `) : "";
const isInput = (value: unknown): value is Input =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** One replacement as a diff; undefined when the input is something else. */
function replacement(edit: Input): string | undefined {
  if (typeof edit["old_string"] !== "string" || typeof edit["new_string"] !== "string") return undefined;
  const all = edit["replace_all"] === true ? "\n(every occurrence)" : "";
  return `${marked("-", edit["old_string"])}\n${marked("+", edit["new_string"])}${all}`;
}

/** The edit that a tool wants to make, as a diff; undefined for tools that edit nothing, or in a way that we do not know. */
function diff({ toolName, input }: IncomingRequest): string | undefined {
  const path = input["file_path"];
  if (typeof path !== "string") return undefined;
  if (toolName === "Write" && typeof input["content"] === "string")
    return `${path} (whole file)\n${marked("+", input["content"])}`;
  const edits = Array.isArray(input["edits"]) ? input["edits"].filter(isInput) : [input];
  const parts = edits.map(replacement);
  if (parts.length === 0 || parts.some((part) => part === undefined)) return undefined;
  return [path, ...parts].join("\n");
}

/** Each value of the input in full. */
function values(input: Input): string {
  const lines = Object.entries(input).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, undefined, 2);
    return text.includes("\n") ? `${name}:\n${indent(text)}` : `${name}: ${text}`;
  });
  return lines.join("\n");
}

/** Exactly what would be approved: an edit as a diff, anything else with every value in full. Control characters are made visible. */
export function describeRequest(request: IncomingRequest): string {
  return indent(reveal(diff(request) ?? values(request.input)));
}

/** Under which conditions a person is asked: who has approved already, and until when. */
export function describeConditions({ approvals_needed, approvals, expires_at_ms }: IncomingRequest): readonly string[] {
  const by = (approvals ?? []).map((approval) => approval.by).join(", ");
  return [
    ...(approvals_needed === undefined
      ? []
      : [`Needs ${approvals_needed} people${by === "" ? "" : `; approved so far by ${reveal(by)}`}.`]),
    ...(expires_at_ms === undefined ? [] : [`Denied by itself at ${new Date(expires_at_ms).toLocaleTimeString()}.`]),
  ];
}
