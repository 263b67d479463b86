/**
 * The fake agent: a program that speaks like the Claude CLI 2.1.332 on stdin and stdout, without a model.
 *
 * Two ways to start it: `fakeAgentSpec(behaviour)` for a launcher, and `fakeAgentBinary(folder, behaviour)` for a server (the path of
 * an executable for PATCHBAY_CLAUDE_BIN, which answers `--version` too). How it behaves as a whole is a `FakeBehaviour`; what a
 * single turn does is said by the text of the user message, so that one server can see every behaviour:
 *
 * | text                         | the turn                                                                                         |
 * |------------------------------|--------------------------------------------------------------------------------------------------|
 * | anything else                | answers `echo: <text>` in three deltas                                                            |
 * | `!stream COUNT BYTES PAUSE_MS` | COUNT deltas of BYTES characters, PAUSE_MS apart                                                |
 * | `!flood MEGABYTES`           | that much in stream_event lines of 64 KiB, as fast as stdout takes it                             |
 * | `!line BYTES`                | one assistant line of exactly BYTES bytes                                                         |
 * | `!until FILE BYTES PAUSE_MS`    | numbered deltas of BYTES characters, every tenth followed by a tool_progress line, until FILE is in its folder |
 * | `!lines COUNT AT_ONCE PAUSE_MS` | COUNT numbered tool_progress lines, with a pause after every AT_ONCE                              |
 * | `!raw ["LINE", …]`             | these lines as they are                                                                          |
 * | `!bytewise TEXT`             | the assistant line with TEXT, one byte per write                                                  |
 * | `!invalid-utf8` `!noise` `!cr` `!inner-cr` | a line with an invalid byte; a plain text line; a line ending in CR LF; one with a CR inside |
 * | `!stderr TEXT`               | TEXT on stderr                                                                                    |
 * | `!dump`                      | answers with JSON `{env, argv, cwd, pid}`                                                         |
 * | `!ask` `!ask2` `!question`   | one or two can_use_tool at once, or AskUserQuestion; waits; answers with the decisions as JSON     |
 * | `!request {JSON}`            | this control_request (its `request`); waits; answers with `[response]` as JSON                     |
 * | `!answers`                   | answers with the number of control_response lines that have come on stdin                         |
 * | `!cancel`                    | a can_use_tool that is withdrawn at once with control_cancel_request                              |
 * | `!background`                | the result; then a turn of its own, whose result has origin.kind `task-notification`              |
 * | `!error`                     | a result of subtype success with is_error                                                         |
 * | `!stall`                     | starts and never ends (an interrupt ends it)                                                      |
 * | `!die CODE` `!kill`          | in the middle of a streamed message: exits with CODE; kills itself with SIGKILL                   |
 * | `!child` `!setsid`           | starts a `sleep 300` in its own group, or in a session of its own; answers with its pid            |
 * | `/clear`                     | goes on under a new session id                                                                    |
 *
 * As the CLI does, it emits init at each turn, echoes user messages (`--replay-user-messages`), sends previews only with
 * `--include-partial-messages`, queues messages that arrive during a turn, answers every control_request (subtype `unsupported`
 * with an error), ends the turn on `interrupt`, ignores a repeated user uuid, keeps a transcript under CLAUDE_CONFIG_DIR, refuses a
 * `--session-id` that has one and a `--resume` that has none, and dies of a malformed stdin line.
 */
import { chmodSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { AgentSpec } from "../../src/agents/port.ts";
import { AGENT_LINE_LIMIT_BYTES } from "../../src/protocol/limits.ts";

/**
 * Numbers of `send` lines (their index in the file) that the host could not send: a transcript that stands at one goes on without it. A
 * file in the working directory, one number a line; read again at SIGUSR2.
 */
export const SKIPPED_SENDS_FILE = "skipped-sends";

/** What is unusual about a fake agent as a whole. */
export interface FakeBehaviour {
  /** Replays this transcript file: prints its `recv` lines, and waits for a stdin line of the same kind at each `send`. */
  readonly transcript?: string;
  /** Replays the file of this folder that has the name of the working directory: one server can then replay them all. */
  readonly transcripts?: string;
  /** At the end of the transcript: wait for EOF or a signal and then end as recorded (default), or end so at once. */
  readonly atEnd?: "wait" | "exit";
  /** Exits with this code before it reads anything. */
  readonly exitCode?: number;
  /** Printed on stderr at start. */
  readonly stderr?: string;
  readonly ignoreEof?: boolean;
  readonly ignoreSigterm?: boolean;
  /** Closes its stdin at once, and lives on. */
  readonly closeStdin?: boolean;
  /** Reads nothing from stdin, for ever. */
  readonly neverRead?: boolean;
  /** initialize is never answered. */
  readonly silentInitialize?: boolean;
  readonly startDelayMs?: number;
  /** Keeps a copy of both pipes in its HOME; `crossed` reads it. */
  readonly recordsPipes?: boolean;
  /** A folder where each process keeps a journal of both pipes, line by line, with the time. */
  readonly journal?: string;
}

const PROGRAM = fileURLToPath(import.meta.resolve("./fake-agent-start.mjs"));
const CLI_FLAGS = ["--include-partial-messages", "--replay-user-messages"];

function programArguments(behaviour: FakeBehaviour): string[] {
  return [PROGRAM, `--fake=${JSON.stringify(behaviour)}`];
}

/** How a launcher starts the fake agent. Its environment is empty but for PATH unless `overrides` says otherwise. */
export function fakeAgentSpec(behaviour: FakeBehaviour = {}, overrides: Partial<AgentSpec> = {}): AgentSpec {
  return {
    command: process.execPath,
    args: [...programArguments(behaviour), ...CLI_FLAGS],
    env: { PATH: "/usr/bin:/bin" },
    cwd: import.meta.dirname,
    lineLimitBytes: AGENT_LINE_LIMIT_BYTES,
    ...overrides,
  };
}

/** Writes an executable into `folder` that stands in for the claude program, and returns its path. */
export function fakeAgentBinary(folder: string, behaviour: FakeBehaviour = {}): string {
  const quoted = [process.execPath, ...programArguments(behaviour)].map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
  const path = join(mkdtempSync(join(folder, "fake-agent-")), "claude");
  writeFileSync(path, `#!/bin/sh\nexec ${quoted.join(" ")} "$@"\n`);
  chmodSync(path, 0o755);
  return path;
}

/** What crossed a pipe of a session's agents that record, parsed, oldest first. */
export function crossed(dataDir: string, sessionId: string, pipe: "stdin" | "stdout"): unknown[] {
  const path = join(dataDir, "homes", sessionId, `${pipe}.ndjson`);
  const text = existsSync(path) ? readFileSync(path, "utf8") : "";
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line): unknown => JSON.parse(line));
}
