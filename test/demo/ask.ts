import { fieldOf, textOf } from "../../src/demo/fields.ts";

export interface SseEvent {
  readonly type: string;
  readonly data: unknown;
}

/** Posts a Messages request as the CLI would; `said` is a user text, or the whole `messages` list. */
export function ask(
  url: string,
  said: string | readonly unknown[],
  more: Readonly<Record<string, unknown>> = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const messages = typeof said === "string" ? [user(said)] : said;
  const body = { model: "claude-test", max_tokens: 1000, stream: true, messages, ...more };
  return fetch(`${url}/v1/messages?beta=true`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

export function user(...content: readonly unknown[]): unknown {
  return {
    role: "user",
    content: content.map((block) => (typeof block === "string" ? { type: "text", text: block } : block)),
  };
}

export function calls(id: string, name: string): unknown {
  return { role: "assistant", content: [{ type: "tool_use", id, name, input: {} }] };
}

export function result(id: string, content: unknown, isError = false): unknown {
  return { type: "tool_result", tool_use_id: id, content, is_error: isError };
}

/** The events of a finished stream. */
export async function eventsOf(response: Response): Promise<readonly SseEvent[]> {
  const text = await response.text();
  return text
    .split("\n\n")
    .filter((frame) => frame.startsWith("event: "))
    .map((frame) => {
      const [first = "", second = ""] = frame.split("\n");
      return { type: first.slice("event: ".length), data: JSON.parse(second.slice("data: ".length)) };
    });
}

/** The text of all text deltas, joined. */
export async function replyText(response: Response): Promise<string> {
  return (await eventsOf(response)).map((event) => textOf(fieldOf(fieldOf(event.data, "delta"), "text"))).join("");
}
