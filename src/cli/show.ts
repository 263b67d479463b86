import { createView, type SessionEvent, type ViewItem } from "../client/index.ts";
import { clean, type Terminal } from "./terminal.ts";

/** A tool's answer is shown up to this many lines; all of it is in the log. */
const RESULT_LINES = 10;

function brief(text: string): string {
  const lines = clean(text).split("\n");
  const rest = lines.length - RESULT_LINES;
  return [...lines.slice(0, RESULT_LINES), ...(rest > 0 ? [`… ${rest} more lines`] : [])].join("\n");
}

function oneLine(input: Readonly<Record<string, unknown>>): string {
  const text = clean(
    Object.values(input).find((value) => typeof value === "string") ?? JSON.stringify(input),
  ).replaceAll("\n", " ");
  return text.length > 100 ? `${text.slice(0, 99)}…` : text;
}

/** Writes events to the terminal as a person reads them. Text of the agent cannot drive the terminal. */
export function createShow(
  terminal: Terminal,
  options: { readonly userLines: boolean },
): (event: SessionEvent) => void {
  const view = createView();
  let inText = false;

  function breakText(): void {
    if (inText) terminal.write("\n");
    inText = false;
  }

  function show(item: ViewItem): void {
    if (item.kind === "text") {
      terminal.write(clean(item.text));
      inText = true;
      return;
    }
    breakText();
    if (item.kind === "user" && options.userLines) terminal.line(`> ${clean(item.text)}`, "bold");
    else if (item.kind === "tool") terminal.line(`[${clean(item.name)}] ${oneLine(item.input)}`, "cyan");
    else if (item.kind === "tool_result") terminal.line(brief(item.text), item.isError ? "red" : "dim");
    else if (item.kind === "note") terminal.line(brief(item.text), "dim");
    else if (item.kind === "turn" && (item.outcome === "failed" || item.text !== "" || item.reason !== "end_turn")) {
      terminal.line(`Turn ${item.outcome}: ${clean(`${item.reason} ${item.text}`)}`, "red");
    }
  }
  return (event) => {
    for (const item of view.push(event)) show(item);
  };
}
