import { fieldOf, listOf, textOf } from "../../src/demo/fields.ts";

interface Message {
  readonly role: string;
  readonly calls: readonly string[];
  readonly results: readonly string[];
}

const blocksOf = (message: unknown, type: string): readonly unknown[] =>
  listOf(fieldOf(message, "content")).filter((block) => fieldOf(block, "type") === type);

/** Neighbours of one role are one message to the API; the CLI's messages of role "system" lie between others. */
function messagesOf(body: unknown): readonly Message[] {
  const joined: Message[] = [];
  for (const message of listOf(fieldOf(body, "messages"))) {
    const role = textOf(fieldOf(message, "role"));
    if (role === "system") continue;
    const calls = blocksOf(message, "tool_use").map((block) => textOf(fieldOf(block, "id")));
    const results = blocksOf(message, "tool_result").map((block) => textOf(fieldOf(block, "tool_use_id")));
    const last = joined.at(-1);
    if (last?.role === role) {
      joined.pop();
      joined.push({ role, calls: [...last.calls, ...calls], results: [...last.results, ...results] });
    } else joined.push({ role, calls, results });
  }
  return joined;
}

/** What the Messages API would refuse: calls without a result in the next message, results without a call in the one before, and either twice. */
export function orphansOf(body: unknown): readonly string[] {
  const messages = messagesOf(body);
  const problems: string[] = [];
  for (const [index, { calls }] of messages.entries()) {
    const results = messages[index + 1]?.results ?? [];
    for (const id of calls) {
      const count = results.filter((result) => result === id).length;
      if (count !== 1) problems.push(`message ${index}: call ${id} has ${count} results`);
    }
  }
  for (const [index, { results }] of messages.entries()) {
    const calls = messages[index - 1]?.calls ?? [];
    for (const id of results) if (!calls.includes(id)) problems.push(`message ${index}: result of ${id} has no call`);
  }
  return problems;
}
