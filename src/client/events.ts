import type { ControlCancelRequest, ControlRequest, ControlResponse, UserMessage } from "../protocol/commands.ts";
import type { EventHead, Origin, SystemEventType, SystemPayloads } from "../protocol/events.ts";

/** A name that this version does not know. At run time any string; the pattern, which no known name fits, lets TypeScript rule it out. */
export type OtherName = `${string}\u0000`;

interface Line {
  readonly uuid?: string;
  /** The CLI's own session id, which may change; ours does not. */
  readonly session_id?: string;
  /** Set on what a subagent said or did: the tool call that started it. */
  readonly parent_tool_use_id?: string | null;
  readonly [field: string]: unknown;
}

export type ContentBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly thinking: string }
  | {
      readonly type: "tool_use";
      readonly id: string;
      readonly name: string;
      readonly input: Readonly<Record<string, unknown>>;
    }
  | {
      readonly type: "tool_result";
      readonly tool_use_id: string;
      readonly content?: unknown;
      readonly is_error?: boolean;
    }
  | { readonly type: OtherName; readonly [field: string]: unknown };

/** The CLI's own line types, as far as most programs look at them. Everything else of a line is there too, as unknown. */
export interface AgentLines {
  assistant: Line & {
    readonly type: "assistant";
    readonly message: {
      readonly id: string;
      readonly content: readonly ContentBlock[];
      readonly [field: string]: unknown;
    };
    readonly error?: string;
  };
  user: Line & {
    readonly type: "user";
    readonly message: { readonly role: "user"; readonly content: string | readonly ContentBlock[] };
    readonly isReplay?: boolean;
  };
  result: Line & {
    readonly type: "result";
    readonly subtype: string;
    /** `subtype: "success"` does not mean success: API failures end so too. */
    readonly is_error: boolean;
    readonly result?: string;
    readonly total_cost_usd?: number;
  };
  stream_event: Line & {
    readonly type: "stream_event";
    readonly event: { readonly type: string; readonly [field: string]: unknown };
  };
  system: Line & { readonly type: "system"; readonly subtype: string };
  control_request: ControlRequest;
  control_response: ControlResponse;
  control_cancel_request: ControlCancelRequest;
}

/** What clients sent, as events. */
export interface UserPayloads {
  query: UserMessage;
  control_request: ControlRequest;
  control_response: ControlResponse;
  control_cancel_request: ControlCancelRequest;
}

type EventsOf<Of extends Origin, Payloads> = {
  [Type in keyof Payloads & string]: Omit<EventHead, "origin" | "event_type"> & {
    readonly origin: Of;
    readonly event_type: Type;
    readonly payload: Payloads[Type];
  };
}[keyof Payloads & string];

/** Types that this version does not know: newer CLIs and servers send them. */
type OtherOf<Of extends Origin> = Omit<EventHead, "origin" | "event_type"> & {
  readonly origin: Of;
  readonly event_type: OtherName;
  readonly payload: Readonly<Record<string, unknown>>;
};

export type SystemEvent = EventsOf<"SYSTEM_EVENT", Pick<SystemPayloads, SystemEventType>> | OtherOf<"SYSTEM_EVENT">;
export type AgentEvent = EventsOf<"AGENT_EVENT", AgentLines> | OtherOf<"AGENT_EVENT">;
export type UserEvent = EventsOf<"USER_EVENT", UserPayloads> | OtherOf<"USER_EVENT">;
export type ExternalEvent = OtherOf<"EXTERNAL_EVENT">;

/** One envelope (contract 5). Look at `origin`, then at `event_type`, and TypeScript knows the payload. */
export type SessionEvent = SystemEvent | AgentEvent | UserEvent | ExternalEvent;
