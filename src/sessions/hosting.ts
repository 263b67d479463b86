import type { Run, Transcript } from "../agents/runner-port.ts";
import type { Write } from "../store/port.ts";
import type { SessionRow } from "./rows.ts";

/** A start of a session's agent. */
export interface AgentStart {
  readonly run: string;
  readonly cliSessionId: string;
  /** The CLI is to run its unfinished turn again. */
  readonly rerun: boolean;
}

/** How a session's agent comes to be: runner, binary, arguments, folders and environment are its business. */
export interface Hosting {
  /**
   * `waiting` is called with what it waits for, should it have to.
   * @throws BrokerError agent_unavailable, cwd_refused, agent_arg_refused, runner_unavailable
   */
  start(row: SessionRow, start: AgentStart, waiting: (reason: string) => void): Promise<Run>;
  /** An agent that an earlier server started; undefined when it is gone. */
  join(run: string): Promise<Run | undefined>;
  /** The runs that runners have, whosever they are. */
  runs(): readonly string[];
  /** Which user messages (by uuid) the stored conversation has; undefined when that cannot be said. */
  messagesTaken(row: SessionRow, cliSessionId: string): Promise<ReadonlySet<string> | undefined>;
  /** The CLI's own files of a conversation; undefined when there are none, or they cannot be reached now. */
  readTranscript(row: SessionRow, cliSessionId: string): Promise<Transcript | undefined>;
  /** The writes that keep a line of the CLI's own transcript. */
  mirrorWrites(sessionId: string, line: Uint8Array): readonly Write[];
  /** After a turn of a CLI that does not print its transcript: the writes that keep a copy of it. */
  copyTranscript(row: SessionRow, cliSessionId: string): Promise<readonly Write[]>;
  /** Removes what belongs to the session alone. */
  removeFolders(row: Pick<SessionRow, "id" | "tenant">): Promise<void>;
  /** Agents go on when this server goes: their runner is a program of its own. */
  readonly agentsStay: boolean;
  readonly lineLimitBytes: number;
}
