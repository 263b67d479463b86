import type { Run, Runner, Transcript } from "../agents/runner-port.ts";
import type { ProcessIdentity } from "../agents/sweep.ts";
import type { Write } from "../store/port.ts";
import type { SessionRow, Spec } from "./rows.ts";

/** A start of a session's agent. */
export interface AgentStart {
  readonly run: string;
  readonly cliSessionId: string;
  /** The CLI is to run its unfinished turn again. */
  readonly rerun: boolean;
}

/** An agent that an earlier server started. */
export interface JoinedRun {
  readonly run: Run;
  /** Its runner is away: whether it lives shows when that is back. */
  readonly isAway: boolean;
}

/** How a session's agent comes to be: runner, binary, arguments, folders and environment are its business. */
export interface Hosting {
  /**
   * Resolves when the session's runner can be reached. `waiting` is called with what it waits for, should it have to; an aborted signal ends
   * the wait. @throws BrokerError runner_unavailable
   */
  reach(row: SessionRow, waiting: (reason: string) => void, signal: AbortSignal): Promise<void>;
  /** @throws BrokerError agent_unavailable, cwd_refused, agent_arg_refused, runner_unavailable */
  start(row: SessionRow, start: AgentStart): Promise<Run>;
  /** An agent that an earlier server started; undefined when it is gone. An aborted signal ends the wait for its runner. */
  join(
    row: SessionRow,
    run: string,
    process: ProcessIdentity | undefined,
    signal: AbortSignal,
  ): Promise<JoinedRun | undefined>;
  /** What a runner says may be news: `linked` is called with each one that is here, and whenever one comes back, before it gets anything to do. */
  watchRunners(linked: (runner: Pick<Runner, "runs" | "join">) => Promise<void>): Promise<void>;
  /** Which user messages (by uuid) the stored conversation has; undefined when that cannot be said. */
  messagesTaken(row: SessionRow, cliSessionId: string): Promise<ReadonlySet<string> | undefined>;
  /** The CLI's own files of a conversation; undefined when there are none, or they cannot be reached now. */
  readTranscript(row: SessionRow, cliSessionId: string): Promise<Transcript | undefined>;
  /** The writes that keep a line of the CLI's own transcript. */
  mirrorWrites(sessionId: string, line: Uint8Array): readonly Write[];
  /** After a turn of a CLI that does not print its transcript: the writes that keep a copy of it. */
  copyTranscript(row: SessionRow, cliSessionId: string): Promise<readonly Write[]>;
  /** Removes what belongs to the session alone. */
  removeFolders(session: Pick<SessionRow, "id" | "tenant">): Promise<void>;
  /** Its folders are on the server's machine. */
  isLocal(spec: Spec): boolean;
  /** The runner that dials in which a session lives on, and where its machine has the tenants' folders; undefined for the server's own. */
  placeOf(id: string): { readonly name: string; readonly workspaceRoot: string | undefined } | undefined;
  /** Its agent goes on when this server goes: the runner is a program of its own. */
  agentStays(spec: Spec): boolean;
  /** With `when_away: fail`: how long an agent's runner may be away before the agent is given up, in milliseconds. */
  readonly giveUpAfterMs: number;
  readonly lineLimitBytes: number;
}
