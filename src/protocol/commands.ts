import type { CommandType, Delivery } from "./events.ts";
import type { Seq } from "./ids.ts";

/** A stream-json user message, as the CLI reads it from stdin. Fields that we do not know pass through. */
export interface UserMessage {
  readonly type: "user";
  readonly message: { readonly role: "user"; readonly content: string | readonly Readonly<Record<string, unknown>>[] };
  readonly uuid?: string;
  readonly [field: string]: unknown;
}

/** Host to CLI request (spec/claude-protocol 3.1). */
export interface ControlRequest {
  readonly type: "control_request";
  readonly request_id: string;
  readonly request: { readonly subtype: string; readonly [field: string]: unknown };
}

/** An answer to a request of the agent. */
export interface ControlResponse {
  readonly type: "control_response";
  readonly response:
    | {
        readonly subtype: "success";
        readonly request_id: string;
        readonly response?: Readonly<Record<string, unknown>>;
      }
    | { readonly subtype: "error"; readonly request_id: string; readonly error: string };
}

/** Withdraws a control_request of the client's own that the CLI has not answered yet. */
export interface ControlCancelRequest {
  readonly type: "control_cancel_request";
  readonly request_id: string;
}

interface CommandOf<T extends CommandType, P> {
  /** The client's idempotency key: 1 to 128 characters, unique per session and principal. */
  readonly id: string;
  readonly event_type: T;
  readonly payload: P;
}

/** One parsed and validated command of a client. */
export type Command =
  | (CommandOf<"query", UserMessage> & { readonly delivery: Delivery })
  | CommandOf<"control_request", ControlRequest>
  | CommandOf<"control_response", ControlResponse>
  | CommandOf<"control_cancel_request", ControlCancelRequest>;

/** Durable and allowed. What the agent makes of it follows as events. */
export interface Accepted {
  readonly seq: Seq;
  readonly duplicate?: true;
}
