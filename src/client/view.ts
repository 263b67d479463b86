import { isJsonObject, stringField } from "../protocol/json.ts";
import type { AgentEvent, AgentLines, ContentBlock, SessionEvent, SystemEvent } from "./events.ts";

/** One thing worth showing to a person, in the order in which it happened. */
export type ViewItem =
  /** What a client said. */
  | { readonly kind: "user"; readonly text: string }
  /** A piece of what the agent says; pieces follow each other without a break until `text_end`. */
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "text_end" }
  | {
      readonly kind: "tool";
      readonly id: string;
      readonly name: string;
      readonly input: Readonly<Record<string, unknown>>;
    }
  | { readonly kind: "tool_result"; readonly id: string; readonly isError: boolean; readonly text: string }
  /** What the agent's program put into the conversation by itself. */
  | { readonly kind: "note"; readonly text: string }
  | {
      readonly kind: "turn";
      readonly turnId: string;
      readonly outcome: "completed" | "failed";
      readonly reason: string;
      readonly text: string;
    };

/** Turns events into what a person reads: streamed text once, echoes not again, machinery left out. */
export interface View {
  push(event: SessionEvent): readonly ViewItem[];
}

function textOfContent(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block: unknown) => stringField(block, "text") ?? "").join("");
}

/** One that was published where no agent was (PROTOCOL 13) may be anything. */
function queryText(payload: unknown): string {
  if (typeof payload === "string") return payload;
  const message = isJsonObject(payload) ? payload["message"] : undefined;
  return textOfContent(isJsonObject(message) ? message["content"] : stringField(payload, "text"));
}

function userItems(line: AgentLines["user"]): ViewItem[] {
  const { content } = line.message;
  if (typeof content === "string") return [{ kind: "note", text: content }];
  return content.flatMap((block): ViewItem[] => {
    if (block.type === "text") return [{ kind: "note", text: block.text }];
    if (block.type !== "tool_result") return [];
    return [
      {
        kind: "tool_result",
        id: block.tool_use_id,
        isError: block.is_error === true,
        text: textOfContent(block.content),
      },
    ];
  });
}

/** What was streamed of the text block that is being written, per speaker: the agent and each of its subagents. */
function createStreams() {
  const shown = new Map<string, string>();
  return {
    delta(speaker: string, event: Readonly<Record<string, unknown>>): ViewItem[] {
      if (event["type"] === "content_block_start") shown.delete(speaker);
      const delta = event["type"] === "content_block_delta" ? event["delta"] : undefined;
      const text = stringField(delta, "type") === "text_delta" ? stringField(delta, "text") : undefined;
      if (text === undefined) return [];
      shown.set(speaker, (shown.get(speaker) ?? "") + text);
      return [{ kind: "text", text }];
    },
    /** The whole text: what is missing of it is shown, or all of it after a break when what was streamed is something else. */
    whole(speaker: string, text: string): ViewItem[] {
      const before = shown.get(speaker) ?? "";
      shown.delete(speaker);
      if (text.startsWith(before)) {
        const rest = text.slice(before.length);
        return rest === "" ? [{ kind: "text_end" }] : [{ kind: "text", text: rest }, { kind: "text_end" }];
      }
      return [{ kind: "text_end" }, { kind: "text", text }, { kind: "text_end" }];
    },
  };
}

function noteOf(event: SystemEvent): string | undefined {
  switch (event.event_type) {
    case "session.recovered":
      return `The server was restarted: ${event.payload.reason}`;
    case "agent.exited":
      return event.payload.how === "exited"
        ? `The agent's program ended by itself (${event.payload.code ?? event.payload.signal}).`
        : undefined;
    case "agent.line_dropped":
      return `A line of ${event.payload.bytes} bytes was over the limit and is lost.`;
    case "request.resolved":
      return event.payload.outcome === "answered" ? undefined : `A request was ${event.payload.outcome}.`;
    default:
      return undefined;
  }
}

export function createView(): View {
  const streams = createStreams();
  const results = new Map<string, string>();

  function blockItems(speaker: string, block: ContentBlock): ViewItem[] {
    if (block.type === "text") return streams.whole(speaker, block.text);
    return block.type === "tool_use" ? [{ kind: "tool", id: block.id, name: block.name, input: block.input }] : [];
  }

  function agentItems(event: AgentEvent): ViewItem[] {
    switch (event.event_type) {
      case "stream_event":
        return streams.delta(event.payload.parent_tool_use_id ?? "", event.payload.event);
      case "assistant":
        return event.payload.message.content.flatMap((block) =>
          blockItems(event.payload.parent_tool_use_id ?? "", block),
        );
      case "user":
        // The command itself was shown already.
        return event.echo_of === undefined && event.payload.isReplay !== true ? userItems(event.payload) : [];
      case "result":
        if (event.turn_id !== undefined && event.payload.is_error)
          results.set(event.turn_id, event.payload.result ?? event.payload.subtype);
        return [];
      case "system": {
        const { subtype, attempt, error_status: status } = event.payload;
        return subtype === "api_retry"
          ? [{ kind: "note", text: `The model's API failed (${status ?? "no answer"}); try ${attempt} follows.` }]
          : [];
      }
      default:
        return [];
    }
  }

  function systemItems(event: SystemEvent): ViewItem[] {
    switch (event.event_type) {
      case "turn.partial":
        return streams.whole("", event.payload.text);
      case "turn.completed": {
        const { turn_id, stop_reason } = event.payload;
        return [
          {
            kind: "turn",
            turnId: turn_id,
            outcome: "completed",
            reason: stop_reason,
            text: results.get(turn_id) ?? "",
          },
        ];
      }
      case "turn.failed": {
        const { turn_id, reason, message } = event.payload;
        return [{ kind: "turn", turnId: turn_id, outcome: "failed", reason, text: message }];
      }
      default: {
        const text = noteOf(event);
        return text === undefined ? [] : [{ kind: "note", text }];
      }
    }
  }

  return {
    push(event) {
      if (event.origin === "AGENT_EVENT") return isJsonObject(event.payload) ? agentItems(event) : [];
      if (event.origin === "SYSTEM_EVENT") return systemItems(event);
      if (event.event_type !== "query") return [];
      return [{ kind: "user", text: queryText(event.payload) }];
    },
  };
}
