/** The end of a background task, as the CLI reports it to the model. */
export interface TaskNotification {
  readonly taskId: string;
  readonly toolUseId: string;
  readonly status: string;
  readonly summary: string;
  /** What a background agent answered; "" for a shell command. */
  readonly result: string;
}

const REMINDER = "<system-reminder>";
const REMINDER_END = "</system-reminder>";
const FOLDED = "The user sent a new message while you were working:\n";
/** How 2.1.197 and 2.1.332 go on after a folded message. */
const AFTER_FOLDED = [
  "\n\nIMPORTANT: After completing your current task",
  "\n\nThis is how Claude Code surfaces messages the user sends mid-turn",
];

/** Texts of role "user" that the CLI writes by itself: marks, local commands, the summary after a compaction. */
const NOT_TYPED = [
  "[Request interrupted by user",
  "<local-command-",
  "<command-name>",
  "<command-message>",
  "<bash-",
  "This session is being continued from a previous conversation",
];

/** Reads a report about a background task; undefined when the text is something else. */
export function parseNotification(text: string): TaskNotification | undefined {
  const start = text.indexOf("<task-notification>");
  // 2.1.197 sends the element alone, 2.1.332 inside a reminder that says it is not user input.
  const isReport = start === 0 || (start > 0 && text.startsWith(REMINDER));
  if (!isReport) return undefined;
  const element = text.slice(start, text.indexOf("</task-notification>", start));
  return {
    taskId: tagText(element, "task-id"),
    toolUseId: tagText(element, "tool-use-id"),
    status: tagText(element, "status"),
    summary: tagText(element, "summary"),
    result: tagText(element, "result"),
  };
}

/** The user's messages that the CLI folded into a running turn, in order, without the words put around them. */
export function foldedTexts(text: string): readonly string[] {
  const inner = text.startsWith(REMINDER) ? text.slice(REMINDER.length).trimStart() : text;
  if (!inner.startsWith(FOLDED)) return [];
  return inner
    .split(FOLDED)
    .slice(1)
    .map((piece) => {
      const ends = AFTER_FOLDED.map((words) => piece.indexOf(words)).filter((index) => index !== -1);
      return ends.length === 0 ? piece : piece.slice(0, Math.min(...ends));
    });
}

/** What the user typed in a text block, exactly; undefined when the block holds nothing but the CLI's own words. */
export function withoutReminders(text: string): string | undefined {
  if (NOT_TYPED.some((mark) => text.startsWith(mark))) return undefined;
  if (!text.startsWith(REMINDER)) return text;
  const end = text.lastIndexOf(REMINDER_END);
  const rest = end === -1 ? "" : text.slice(end + REMINDER_END.length).trimStart();
  return rest === "" ? undefined : rest;
}

function tagText(element: string, tag: string): string {
  const start = element.indexOf(`<${tag}>`);
  const end = element.lastIndexOf(`</${tag}>`);
  return start === -1 || end === -1 ? "" : element.slice(start + tag.length + 2, end);
}
