export type { Accepted, UserMessage } from "../protocol/commands.ts";
export type { Delivery, OpenRequest, RequestKind, SessionState, SessionView } from "../protocol/events.ts";
export type { Cursor } from "../protocol/frames.ts";
export type { Question } from "../protocol/requests.ts";
export { type Client, type ConnectOptions, connect } from "./connect.ts";
export type { Status } from "./connection.ts";
export { PatchbayError } from "./errors.ts";
export type {
  AgentEvent,
  AgentLines,
  ContentBlock,
  ExternalEvent,
  SessionEvent,
  SystemEvent,
  UserEvent,
} from "./events.ts";
export type { HttpCall } from "./http.ts";
export type { Answered, IncomingRequest, RequestHandler, Resolution } from "./requests.ts";
export type { Served, ServedHook } from "./serve.ts";
export type { ClientSession, EventsOptions, SendOptions, Sent } from "./session.ts";
export type { ForkInput, McpServerInput, SessionInput, SessionQuery, SessionUpdate } from "./sessions.ts";
export type { TurnOutcome } from "./turn-watch.ts";
export { createView, type View, type ViewItem } from "./view.ts";
