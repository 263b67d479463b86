import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import { createLineCutter, type LineCutter } from "../lines.ts";
import type { AgentExit, AgentOutput, StopPatience } from "../port.ts";
import type { Run, RunHandlers } from "../runner-port.ts";
import { stdinLine } from "../stdin.ts";
import type { ProcessIdentity } from "../sweep.ts";
import type { ClientCalls } from "./client-calls.ts";
import { type Frame, leadingCount } from "./frames.ts";
import type { Link } from "./link.ts";
import { readJson } from "./messages.ts";
import { createOutputQueue } from "./output-queue.ts";
import { createStdinQueue, type StdinThere } from "./stdin-queue.ts";

/** A run of a runner elsewhere, and what only the server's side of that runner does with it. */
export interface RemoteRun {
  readonly run: Run;
  readonly channel: number;
  /** A new link: takes up the run where it was. */
  linked(link: Link): void;
  unlinked(): void;
  away(isAway: boolean): void;
  /** A frame of its channel. @throws FrameFault */
  frame(frame: Frame): void;
}

export interface RemoteRunParts {
  readonly id: string;
  readonly channel: number;
  /** What the runner said of it. */
  readonly described: JsonObject;
  readonly calls: ClientCalls;
  /** The link that the description came over. */
  readonly link: Link | undefined;
  /** Its exit was acknowledged: nothing of it is needed any more. */
  readonly done: () => void;
  /** It was given up while its runner may still have it. */
  readonly abandon: () => void;
}

/** The largest limit that a server can be given (options.ts). */
const LINE_MOST_BYTES = 512 * 1024 * 1024;

const LOST: AgentExit = { code: null, signal: null, how: "exited", stderrTail: "", lost: true };

export function createRemoteRun(parts: RemoteRunParts): RemoteRun {
  const { id, channel, described, calls } = parts;
  let { link } = parts;
  let handlers: RunHandlers | undefined;
  let acknowledged = 0;
  let isAway = false;
  let isGivenUp = false;
  let asked: StopPatience | undefined;
  // Of a run that was taken up while its runner was away, nothing is known before the runner says it.
  let lineLimitBytes = lineLimitOf(described);
  const stdin = createStdinQueue(channel, countOf(described["written"]));
  const queue = createOutputQueue({
    cutter: (): LineCutter => createLineCutter(lineLimitBytes),
    output: (lines: readonly AgentOutput[], upTo: number) => handlers?.output(lines, upTo),
    exited: (exit, number) => handlers?.exited(exit, number),
    taken: (bytes) => link?.send({ kind: "taken", channel, count: bytes }),
    failed: () => run.stop({ eofMs: 0, termMs: 0 }),
  });

  const lost = (): AgentExit => ({ ...LOST, sentUpTo: stdin.sent() });

  function joined(json: JsonObject, over: Link): void {
    // Given up since it was asked: nothing goes to it any more.
    if (isGivenUp) return;
    if (json["known"] !== true) {
      queue.end(lost());
      return;
    }
    link = over;
    lineLimitBytes = lineLimitOf(json);
    stdin.linked(over, stdinThere(json));
    if (acknowledged > 0) over.send({ kind: "ack", channel, count: acknowledged });
    if (asked !== undefined) calls.tell("stop", { run: id, ...asked });
    if (json["from"] !== undefined) queue.begin(countOf(json["from"]));
    tellAway(false);
  }

  function join(over: Link): void {
    const after = handlers === undefined ? {} : { after: queue.delivered() };
    calls.tell("join", { run: id, channel, ...after }, (json) => joined(json, over));
  }

  function tellAway(now: boolean): void {
    if (isAway === now || queue.hasEnded()) return;
    isAway = now;
    handlers?.away(now);
  }

  const run: Run = {
    run: id,
    pid: typeof described["pid"] === "number" ? described["pid"] : undefined,
    process: isIdentity(described["process"]) ? described["process"] : undefined,
    resumed: described["resumed"] === true,
    last: countOf(described["last"]),
    get written() {
      return stdin.last();
    },
    attach(after, to) {
      handlers = to;
      queue.start(after, described["exited"] === true && after >= run.last);
      if (stdin.confirmed() > 0) to.written(stdin.confirmed());
      if (isAway) to.away(true);
      if (link !== undefined) join(link);
    },
    write: (lineId, message) => stdin.write(lineId, stdinLine(message)),
    acknowledge(upTo) {
      if (upTo <= acknowledged) return;
      acknowledged = upTo;
      const hadEnded = described["exited"] === true && upTo >= run.last;
      if (hadEnded || (queue.hasEnded() && upTo >= queue.delivered())) parts.done();
      else link?.send({ kind: "ack", channel, count: upTo });
    },
    stop(patience) {
      asked = patience;
      calls.tell("stop", { run: id, ...patience });
    },
    abandon() {
      if (queue.hasEnded() || isGivenUp) return;
      isGivenUp = true;
      link = undefined;
      stdin.unlinked();
      queue.interrupt();
      parts.abandon();
      queue.end(lost());
    },
  };
  if (link !== undefined) stdin.linked(link, stdinThere(described));

  return {
    run,
    channel,
    linked: join,
    unlinked() {
      link = undefined;
      stdin.unlinked();
      queue.interrupt();
    },
    away: tellAway,
    frame(frame) {
      if (frame.kind === "output") queue.push(frame.body);
      else if (frame.kind === "exit") queue.end(exitOf(readJson(frame.body.subarray(6))), leadingCount(frame.body));
      else if (frame.kind === "written") {
        const written = leadingCount(frame.body);
        stdin.confirm(written);
        handlers?.written(written);
      }
    },
  };
}

function stdinThere(described: JsonObject): StdinThere {
  return { taken: countOf(described["written"]), unwrittenBytes: countOf(described["unwrittenBytes"]) };
}

/** A runner elsewhere may say anything: a line without an end must not grow for ever. */
const lineLimitOf = (described: JsonObject): number => Math.min(countOf(described["lineLimitBytes"]), LINE_MOST_BYTES);

function countOf(value: unknown): number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

function isIdentity(value: unknown): value is ProcessIdentity {
  return isJsonObject(value) && typeof value["pid"] === "number" && typeof value["startTime"] === "string";
}

function exitOf(json: JsonObject): AgentExit {
  const { code, signal, how, stderrTail, spawnError, lost } = json;
  return {
    code: typeof code === "number" ? code : null,
    signal: typeof signal === "string" ? signal : null,
    how: how === "eof" || how === "SIGTERM" || how === "SIGKILL" ? how : "exited",
    stderrTail: typeof stderrTail === "string" ? stderrTail : "",
    ...(typeof spawnError === "string" && { spawnError }),
    ...(lost === true && { lost }),
  };
}
