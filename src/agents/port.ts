import type { JsonObject } from "../protocol/json.ts";

/** One line of the agent's stdout, or what became of it. */
export type AgentOutput =
  /** A line that is valid UTF-8 and one JSON object, without its newline (and without a trailing CR). `message` is a parsed copy. */
  | { readonly kind: "line"; readonly bytes: Uint8Array; readonly message: JsonObject }
  /** A line that is something else; never forwarded as an agent event. */
  | { readonly kind: "noise"; readonly bytes: Uint8Array }
  /** A line over the limit: its bytes are gone, its size is known. */
  | { readonly kind: "dropped"; readonly bytes: number };

/** How a stop went, by the last rung that was needed. `exited` = it was gone before anybody asked. */
export type HowEnded = "exited" | "eof" | "SIGTERM" | "SIGKILL";

export interface AgentExit {
  /** null when a signal ended it, or it never started. */
  readonly code: number | null;
  readonly signal: string | null;
  readonly how: HowEnded;
  /** The last 8 KiB of stderr as text (invalid UTF-8 replaced). */
  readonly stderrTail: string;
  /** Set when the process never came to be (missing file, no permission). */
  readonly spawnError?: string;
  /** Its runner has gone, and it with the runner: nothing more is known of its end. */
  readonly lost?: true;
  /** Of a lost one: lines of stdin with higher ids have never left the server. */
  readonly sentUpTo?: number;
}

export interface AgentSpec {
  readonly command: string;
  readonly args: readonly string[];
  /** The whole environment: nothing else reaches the process. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly lineLimitBytes: number;
}

export interface AgentHandlers {
  /**
   * All lines of one read, in order. While the returned promise is pending, stdout is not read further. If it fails, the agent is
   * killed and nothing more is delivered: lines would be missing from the log.
   */
  output(lines: readonly AgentOutput[]): void | Promise<void>;
  /** Once, after the last output and when the whole process group is gone. Also for a process that never started. */
  exited(exit: AgentExit): void;
}

/** For who wants stdout as it comes, without cutting it into lines. */
export interface RawHandlers {
  /** What one read brought. While the returned promise is pending, stdout is not read further. If it fails, the agent is killed. */
  chunk(bytes: Buffer): void | Promise<void>;
  /** Once, after the last chunk and before `exited`. */
  ended(): void | Promise<void>;
  exited(exit: AgentExit): void;
}

/** Each rung's patience in milliseconds: after closing stdin, after SIGTERM; then SIGKILL of the whole group. */
export interface StopPatience {
  readonly eofMs: number;
  readonly termMs: number;
}

export interface Agent {
  /** undefined when the process never started; `exited` is then on its way. */
  readonly pid: number | undefined;
  /**
   * One JSON value as one line of stdin. Resolves when the pipe has taken it, or is dead: that shows as the exit. Rejects only with
   * BrokerError bad_request, for a line that the CLI would die of (spec/claude-protocol 4.2); nothing of it is written.
   */
  write(message: JsonObject): Promise<void>;
  /** The same for a line that `stdinLine` has made, with its newline. Never rejects. */
  writeLine(line: Uint8Array): Promise<void>;
  /** stdin EOF, SIGTERM, SIGKILL of the group. Resolves with the exit. Safe to call twice; the first patience counts unless the second is shorter. */
  stop(patience: StopPatience): Promise<AgentExit>;
}

/** How a process comes to be. `process` is the first launcher; others follow behind the same conformance suite (design 4). */
export interface Launcher {
  readonly name: string;
  start(spec: AgentSpec, handlers: AgentHandlers): Agent;
  startRaw(spec: AgentSpec, handlers: RawHandlers): Agent;
}
