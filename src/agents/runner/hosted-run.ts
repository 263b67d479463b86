import type { JsonObject } from "../../protocol/json.ts";
import type { Agent, AgentExit, Launcher, StopPatience } from "../port.ts";
import type { PreparedAgent } from "../prepare.ts";
import { identity, type ProcessIdentity } from "../sweep.ts";
import { afterCount, type Frame, leadingCount } from "./frames.ts";
import type { Journal } from "./journal.ts";
import type { Link } from "./link.ts";
import { createStdinIntake } from "./stdin-intake.ts";

/** Output that may be on its way to the server or in its hands, per run. */
const WINDOW_BYTES = 1024 * 1024;
/** How much of one run goes out before it is another's turn. */
const PIECE_BYTES = 128 * 1024;

/** A run within the runner. It lives on without a link. */
export interface HostedRun {
  readonly run: string;
  /** What the server is told of it. */
  describe(): JsonObject;
  /** This link carries the run's frames from now on; no output is sent before `deliver`. */
  bind(link: Link, channel: number): void;
  unbind(): void;
  /** Where output goes on when the server has everything up to line `after`. */
  locate(after: number): Promise<{ readonly offset: number; readonly line: number }>;
  /** Sends output from that offset on. */
  deliver(offset: number): void;
  /** Sends what is due, if link and window allow. True when there is more to send at once. */
  pump(): boolean;
  /** A frame of the run's channel. @throws FrameFault */
  frame(frame: Frame): void;
  stop(patience: StopPatience): void;
  /** Resolves when the agent is gone. */
  gone: Promise<unknown>;
  /** The last line's number and, when it has ended, the exit's. */
  last(): number;
  /** Drops what was kept. */
  forget(): Promise<void>;
}

export interface HostedRunParts {
  readonly run: string;
  readonly launcher: Launcher;
  readonly prepared: PreparedAgent;
  readonly journal: Journal;
  /** The process began, or is gone: for the sweep of a later runner. */
  readonly began: (process: ProcessIdentity) => void;
  readonly ended: (process: ProcessIdentity | undefined) => void;
}

/** Starts the agent. */
export function startHostedRun({ run, launcher, prepared, journal, began, ended }: HostedRunParts): HostedRun {
  const gone = Promise.withResolvers<void>();
  let exit: AgentExit | undefined;
  const agent: Agent = launcher.startRaw(prepared.spec, {
    chunk(bytes) {
      const kept = journal.append(bytes);
      if (kept !== undefined) return kept.then(() => void outlet.pump());
      outlet.pump();
      return undefined;
    },
    ended: () => journal.finish(),
    exited(how) {
      exit = how;
      ended(leader);
      outlet.exited(how);
      gone.resolve();
    },
  });
  const leader = agent.pid === undefined ? undefined : identity(agent.pid);
  const outlet = createOutlet(journal, () => void agent.stop({ eofMs: 0, termMs: 0 }));
  const intake = createStdinIntake(agent, (id) => outlet.written(id));
  // One that a later runner would not find (the disk is full) may not live: it could still be there when the next one of its session starts.
  try {
    if (leader !== undefined) began(leader);
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : new Error(String(error)));
    void agent.stop({ eofMs: 0, termMs: 0 });
  }
  const last = (): number => journal.lines() + (exit === undefined ? 0 : 1);

  return {
    run,
    gone: gone.promise,
    last,
    describe: () => ({
      pid: agent.pid ?? null,
      process: leader ?? null,
      resumed: prepared.resumed,
      last: last(),
      exited: exit !== undefined,
      written: intake.taken(),
      unwrittenBytes: intake.unwrittenBytes(),
      lineLimitBytes: prepared.spec.lineLimitBytes,
    }),
    bind(link, channel) {
      outlet.bind(link, channel);
      if (intake.written() > 0) outlet.written(intake.written());
    },
    unbind() {
      outlet.unbind();
      intake.dropPartial();
    },
    locate: (after) =>
      journal.seek(after).catch((error: unknown) => {
        outlet.breakOff(error);
        return { offset: journal.end(), line: after };
      }),
    deliver: outlet.deliver,
    pump: outlet.pump,
    frame(frame) {
      if (frame.kind === "taken") outlet.taken(leadingCount(frame.body));
      else if (frame.kind === "ack") outlet.acknowledge(leadingCount(frame.body));
      else if (frame.kind === "write") intake.push(leadingCount(frame.body), afterCount(frame.body), frame.more);
    },
    stop: (patience) => void agent.stop(patience),
    forget() {
      outlet.unbind();
      return journal.close();
    },
  };
}

/** Output on its way out: in order, within the window, then the exit. */
function createOutlet(journal: Journal, kill: () => void) {
  let to: { readonly link: Link; readonly channel: number } | undefined;
  let isDelivering = false;
  let isReading = false;
  let next = 0;
  /** The furthest that any server has been sent. */
  let reached = 0;
  let sent = 0;
  let taken = 0;
  let exit: AgentExit | undefined;
  let isExitTold = false;
  let isBroken = false;

  function send(bytes: Buffer): void {
    next += bytes.length;
    reached = Math.max(reached, next);
    sent += bytes.length;
    to?.link.send({ kind: "output", channel: to.channel, body: bytes });
  }

  /** What is on disk is read while others go on; a link that came meanwhile has begun anew. */
  async function sendLater(reading: Promise<Buffer>, target: typeof to): Promise<void> {
    isReading = true;
    try {
      const bytes = await reading;
      if (to === target) send(bytes);
    } catch (error) {
      breakOff(error);
    } finally {
      isReading = false;
      while (pump());
    }
  }

  /** What cannot be read is lost; the run ends rather than to go on with a hole. */
  function breakOff(error: unknown): void {
    process.emitWarning(error instanceof Error ? error : String(error));
    isBroken = true;
    journal.close().catch(() => {});
    kill();
  }

  function pump(): boolean {
    if (to === undefined || !isDelivering || isReading) return false;
    const room = WINDOW_BYTES - (sent - taken);
    next = Math.max(next, journal.start());
    if (!isBroken && next < journal.end()) {
      if (room <= 0 || to.link.isCongested()) return false;
      const bytes = journal.read(next, Math.min(room, PIECE_BYTES));
      if (bytes instanceof Promise) void sendLater(bytes, to);
      else send(bytes);
      return !isReading;
    }
    if (exit !== undefined && !isExitTold) {
      isExitTold = true;
      const body = Buffer.from(JSON.stringify(isBroken ? { ...exit, lost: true } : exit), "utf8");
      to.link.send({ kind: "exit", channel: to.channel, count: journal.lines() + 1, body });
    }
    return false;
  }

  return {
    pump,
    breakOff,
    bind(link: Link, channel: number) {
      to = { link, channel };
      isDelivering = false;
    },
    unbind() {
      to = undefined;
      isDelivering = false;
    },
    deliver(offset: number) {
      next = offset;
      sent = 0;
      taken = 0;
      isExitTold = false;
      isDelivering = true;
      while (pump());
    },
    /** Of what nobody was sent nothing can be durable. */
    acknowledge(line: number) {
      journal.acknowledge(Math.min(line, journal.linesBefore(reached)));
    },
    taken(bytes: number) {
      taken = Math.min(Math.max(taken, bytes), sent);
      while (pump());
    },
    written: (id: number) => to?.link.send({ kind: "written", channel: to.channel, count: id }),
    exited(how: AgentExit) {
      exit = how;
      while (pump());
    },
  };
}
