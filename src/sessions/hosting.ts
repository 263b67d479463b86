import type { Agent, AgentHandlers, Launcher } from "../agents/port.ts";
import type { SessionRow } from "./rows.ts";
import type { Snapshot } from "./state.ts";

/** An agent on its way: whether it resumes a conversation, and who it is to a later server. */
export interface StartedAgent {
  readonly agent: Agent;
  readonly resumed: boolean;
  readonly process: Snapshot["process"];
}

/** How a session's agent comes to be: binary, arguments, folders and environment are its business. */
export interface Hosting {
  /** @throws BrokerError agent_unavailable, cwd_refused, agent_arg_refused */
  start(row: SessionRow, cliSessionId: string, handlers: AgentHandlers): Promise<StartedAgent>;
  readonly launcher: Launcher;
  readonly lineLimitBytes: number;
}
