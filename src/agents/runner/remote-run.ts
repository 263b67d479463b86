import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import { createLineCutter, type LineCutter } from "../lines.ts";
import type { AgentExit, AgentOutput, StopPatience } from "../port.ts";
import type { Run, RunHandlers } from "../runner-port.ts";
import { stdinLine } from "../stdin.ts";
import type { ProcessIdentity } from "../sweep.ts";
import type { ClientCalls } from "./client-calls.ts";
import { FRAME_BODY_LIMIT_BYTES, type Frame, leadingCount } from "./frames.ts";
import type { Link } from "./link.ts";
import { readJson } from "./messages.ts";
import { createOutputQueue } from "./output-queue.ts";

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

const LOST: AgentExit = { code: null, signal: null, how: "exited", stderrTail: "", lost: true };
/** The six bytes of a line's id come before a piece of it. */
const WRITE_PIECE_BYTES = FRAME_BODY_LIMIT_BYTES - 6;

export function createRemoteRun(parts: RemoteRunParts): RemoteRun {
  const { id, channel, described, calls } = parts;
  let { link } = parts;
  let handlers: RunHandlers | undefined;
  let acknowledged = 0;
  let isAway = false;
  let asked: StopPatience | undefined;
  // Of a run that was taken up while its runner was away, nothing is known before the runner says it.
  let lineLimitBytes = countOf(described["lineLimitBytes"]);
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
    if (json["known"] !== true) {
      queue.end(lost(), queue.delivered() + 1);
      return;
    }
    link = over;
    lineLimitBytes = countOf(json["lineLimitBytes"]);
    stdin.linked(over, countOf(json["written"]));
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
      return stdin.taken();
    },
    attach(after, to) {
      handlers = to;
      queue.start(after);
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
      if (queue.hasEnded()) return;
      link = undefined;
      stdin.unlinked();
      queue.interrupt();
      parts.abandon();
      queue.end(lost(), queue.delivered() + 1);
    },
  };
  if (link !== undefined) stdin.linked(link, stdin.taken());

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

/** Lines for stdin, kept until the runner says that they are in the pipe. */
function createStdinQueue(channel: number, takenAtFirst: number) {
  const waiting = new Map<number, Buffer>();
  let link: Link | undefined;
  let taken = takenAtFirst;
  let confirmed = 0;
  let sent = takenAtFirst;

  function send(id: number, line: Buffer): void {
    if (link !== undefined) sent = Math.max(sent, id);
    for (let from = 0; from < line.length; from += WRITE_PIECE_BYTES) {
      const to = from + WRITE_PIECE_BYTES;
      link?.send({ kind: "write", channel, count: id, more: to < line.length, body: line.subarray(from, to) });
    }
  }

  return {
    taken: () => taken,
    confirmed: () => confirmed,
    /** Lines up to this id may have reached the runner. */
    sent: () => sent,
    write(id: number, line: Buffer) {
      if (id <= taken) return;
      taken = id;
      waiting.set(id, line);
      send(id, line);
    },
    confirm(upTo: number) {
      confirmed = Math.max(confirmed, upTo);
      for (const id of waiting.keys()) {
        if (id > upTo) break;
        waiting.delete(id);
      }
    },
    /** The runner drops what it has had; what it had taken needs no repeat. */
    linked(to: Link, takenThere: number) {
      if (link === to) return;
      link = to;
      for (const [id, line] of waiting) if (id > takenThere) send(id, line);
    },
    unlinked() {
      link = undefined;
    },
  };
}

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
