import type { CommandType, Delivery, Envelope, OpenRequest, SessionState, SessionView } from "./events.ts";
import type { Seq, SessionId } from "./ids.ts";
import type { ProblemBody } from "./problems.ts";
import type { Capability, Registration } from "./registration.ts";
import type { Role } from "./roles.ts";

/** The WebSocket subprotocol of contract 5, and the `protocol` of `welcome`. */
export const SUBPROTOCOL = "patchbay.v1";
/** The subprotocol of a runner that dials in (PROTOCOL.md 12): binary, the runner's frames. */
export const RUNNER_SUBPROTOCOL = "patchbay.runner.v1";

/** Where a reader starts: after a number it has seen (0 = everything), or `head` = only what is new. */
export type Cursor = number | "head";

export interface CommandFrame {
  readonly type: "command";
  readonly id: string;
  readonly session_id: string;
  readonly event_type: CommandType;
  readonly payload: unknown;
  readonly delivery?: Delivery;
}

/** contract 5, client to server. */
export type ClientFrame =
  | { readonly type: "auth"; readonly token: string }
  | {
      readonly type: "subscribe";
      readonly session_id: string;
      readonly after?: Cursor;
      readonly previews?: boolean;
      readonly capabilities?: readonly Capability[];
      readonly register?: Registration;
    }
  | { readonly type: "unsubscribe"; readonly session_id: string }
  | { readonly type: "watch" }
  | CommandFrame
  | { readonly type: "ping" };

export interface PrincipalView {
  readonly id: string;
  readonly tenant: string;
  readonly roles: readonly Role[];
}

/** contract 5, server to client. */
export type ServerFrame =
  | {
      readonly type: "welcome";
      readonly protocol: typeof SUBPROTOCOL;
      readonly connection_id: string;
      readonly principal: PrincipalView;
      readonly heartbeat_ms: number;
    }
  | {
      readonly type: "subscribed";
      readonly session_id: SessionId;
      readonly head: Seq;
      readonly state: SessionState;
      readonly open_requests: readonly OpenRequest[];
      /** When this subscription registered hooks or servers: the `owner` of the requests that are its own. */
      readonly owner?: string;
    }
  | ({ readonly type: "event" } & Envelope)
  | { readonly type: "ack"; readonly id: string; readonly seq: Seq; readonly duplicate?: true }
  | ({ readonly type: "error"; readonly id?: string; readonly session_id?: string } & ProblemBody)
  | { readonly type: "gap"; readonly session_id: SessionId; readonly first_available: Seq }
  | ({ readonly type: "session" } & SessionView)
  | { readonly type: "ended"; readonly session_id: SessionId }
  | { readonly type: "pong" };
