import type { JsonObject } from "../protocol/json.ts";
import type { AgentOptions } from "../protocol/sessions.schema.ts";
import type { AgentExit, AgentOutput, StopPatience } from "./port.ts";
import type { ProcessIdentity } from "./sweep.ts";

/** Which session's folders: the runner knows where they are on its own machine. */
export interface SessionPlace {
  readonly tenant: string;
  readonly sessionId: string;
  /** Relative to the tenant's folder; absent = the session's own folder. */
  readonly cwd?: string;
}

/** A conversation to begin as a copy of another one, up to and including the entry `at` (absent = all of it). */
export interface ForkSource {
  readonly cliSessionId: string;
  readonly at?: string;
}

/** What an agent needs to come to be, wherever its runner is: it names no path of the server's machine but `command`. */
export interface StartRequest {
  /** This process's own id, chosen by its session: a runner starts each one once. */
  readonly run: string;
  readonly place: SessionPlace;
  readonly options: AgentOptions;
  readonly cliSessionId: string;
  /** Counts only while no transcript of `cliSessionId` exists. */
  readonly fork?: ForkSource;
  /** Variables that the operator hands to every agent. */
  readonly sharedEnv: Readonly<Record<string, string>>;
  /** The CLI runs an unfinished last turn again by itself (spec/claude-protocol 4.6). */
  readonly rerun: boolean;
  /** The CLI prints its transcript as `transcript_mirror` lines. */
  readonly mirror: boolean;
  /** The CLI's program, for a runner on the server's machine; one elsewhere uses its own. */
  readonly command?: string;
  readonly lineLimitBytes: number;
}

export interface RunHandlers {
  /**
   * Output in order; `upTo` is the number of the last line of it (lines are numbered from 1 in each run). While the returned promise is
   * pending no more comes; that it settles says "taken", not "durable": see `acknowledge`.
   */
  output(lines: readonly AgentOutput[], upTo: number): void | Promise<void>;
  /** Once, after the last output, when the process group is gone. `number` follows that of the last line. */
  exited(exit: AgentExit, number: number): void;
  /** Lines of stdin up to this id have reached the pipe (or a dead pipe), and would not be written again. */
  written(id: number): void;
  /** The runner cannot be reached (true), or can again (false). A local one that crashed ends its runs instead. */
  away(isAway: boolean): void;
}

/** One agent process, as its session holds it: owned by a runner that may outlive the server. */
export interface Run {
  readonly run: string;
  /** undefined when the process never started; its exit is then on the way. */
  readonly pid: number | undefined;
  readonly process: ProcessIdentity | undefined;
  /** It went on with a stored conversation. */
  readonly resumed: boolean;
  /** The number of the newest output (or exit) when this Run was handed out; 0 for a new one. Earlier servers showed no more than that. */
  readonly last: number;
  /** The highest id of stdin lines that the runner has taken. */
  readonly written: number;
  /** Begins to deliver what follows the line `after`. Called once. */
  attach(after: number, handlers: RunHandlers): void;
  /**
   * One JSON value as one line of stdin. Ids ascend from 1 in each run; a line whose id is not above the last one taken is not written
   * again. @throws BrokerError bad_request for a line that the CLI would die of; nothing of it is written
   */
  write(id: number, message: JsonObject): void;
  /** Everything up to this number is durable: the runner may forget it. With the exit's number it forgets the run. */
  acknowledge(upTo: number): void;
  /** stdin EOF, SIGTERM, SIGKILL of the group; the exit comes to the handlers. Safe to call twice; the shorter patience counts. */
  stop(patience: StopPatience): void;
  /**
   * Gives the run up although its runner is away: its exit comes as lost, what was not delivered is gone. The runner ends the agent as soon as
   * it is back, before anything else is started there.
   */
  abandon(): void;
}

/** A session's folders on the machine of its runner. */
export interface RunnerFiles {
  /** The CLI's transcript of that id: the main file and those of its subagents, by path relative to the project's folder; undefined when there is none. */
  readTranscript(place: SessionPlace, cliSessionId: string): Promise<Transcript | undefined>;
  hasTranscript(place: SessionPlace, cliSessionId: string): Promise<boolean>;
  /** Writes a transcript where the CLI will look for it, in place of one that is there. */
  writeTranscript(place: SessionPlace, cliSessionId: string, transcript: Transcript): Promise<void>;
  /** Removes the session's own folder and its home. Missing ones are no error. */
  remove(place: SessionPlace): Promise<void>;
}

/** Files of a transcript: path relative to the project's folder (`<id>.jsonl`, `<id>/subagents/….jsonl`) and its bytes. */
export type Transcript = ReadonlyMap<string, Uint8Array>;

/** Owns agent processes. It may be this process, a local program that outlives it, or a program on another machine. */
export interface Runner {
  readonly name: string;
  /** @throws BrokerError agent_unavailable, cwd_refused, agent_arg_refused, runner_unavailable */
  start(request: StartRequest): Promise<Run>;
  /** A run that an earlier server started, living or ended; undefined when this runner does not know it (any more). @throws BrokerError runner_unavailable */
  join(run: string): Promise<Run | undefined>;
  /** The runs that it knows. Those of no session are to be stopped and acknowledged. */
  runs(): readonly string[];
  readonly files: RunnerFiles;
  /** Lets go of the runner: its agents stay if it outlives this process, else they are stopped first. */
  close(): Promise<void>;
}
