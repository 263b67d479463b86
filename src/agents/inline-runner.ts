import type { Agent, AgentExit, AgentOutput, Launcher, StopPatience } from "./port.ts";
import { type PreparedAgent, prepareAgent, type RunnerSettings } from "./prepare.ts";
import type { Run, RunHandlers, Runner, StartRequest } from "./runner-port.ts";
import { stdinLine } from "./stdin.ts";
import { identity } from "./sweep.ts";
import { createTranscriptFiles } from "./transcript-files.ts";

export interface InlineRunnerParts {
  readonly launcher: Launcher;
  readonly settings: RunnerSettings;
  /** How long agents get to end when the runner is closed. */
  readonly closePatience?: StopPatience;
}

const CLOSE_PATIENCE: StopPatience = { eofMs: 2000, termMs: 2000 };

/** A run of this process, and what only its runner does with it. */
interface InlineRun {
  readonly run: Run;
  /** Stops it; resolves when it is gone. Output that nobody attached to is dropped. */
  abandon(patience: StopPatience): Promise<unknown>;
}

/** Owns agents within this process: no frames, nothing kept. They end with it, and so does what was not taken. */
export function createInlineRunner({ launcher, settings, closePatience = CLOSE_PATIENCE }: InlineRunnerParts): Runner {
  const runs = new Map<string, InlineRun>();
  const starting = new Map<string, Promise<Run>>();

  async function begin(request: StartRequest): Promise<Run> {
    const prepared = await prepareAgent(request, settings);
    const started = startRun(request.run, launcher, prepared, () => runs.delete(request.run));
    runs.set(request.run, started);
    return started.run;
  }

  return {
    name: "inline",
    files: createTranscriptFiles(settings),
    start(request) {
      const known = runs.get(request.run);
      if (known !== undefined) return Promise.resolve(known.run);
      const begun = starting.get(request.run) ?? begin(request).finally(() => starting.delete(request.run));
      starting.set(request.run, begun);
      return begun;
    },
    join: async (run) => runs.get(run)?.run,
    runs: () => [...runs.keys()],
    async close() {
      await Promise.allSettled(starting.values());
      await Promise.all([...runs.values()].map((run) => run.abandon(closePatience)));
      runs.clear();
    },
  };
}

function startRun(id: string, launcher: Launcher, prepared: PreparedAgent, forget: () => void): InlineRun {
  const { resumed, spec } = prepared;
  let handlers: RunHandlers | undefined;
  let last = 0;
  let written = 0;
  let taken = 0;
  let exit: AgentExit | undefined;
  let held: AgentOutput[] = [];
  const attached = Promise.withResolvers<void>();

  const agent = launcher.start(spec, {
    output(lines) {
      last += lines.length;
      if (handlers !== undefined) return handlers.output(lines, last);
      // stdout is read no further until somebody attaches: this is one read's worth.
      held = [...held, ...lines];
      return attached.promise;
    },
    exited(ended) {
      last += 1;
      exit = ended;
      handlers?.exited(ended, last);
    },
  });

  /** In a later tick: whoever attaches has not finished its own step yet. */
  async function catchUp(after: number, to: RunHandlers): Promise<void> {
    await Promise.resolve();
    const lines = held;
    held = [];
    if (written > 0) to.written(written);
    if (lines.length > 0) await to.output(lines, last);
    else if (exit !== undefined && after < last) to.exited(exit, last);
  }

  const run: Run = {
    run: id,
    resumed,
    pid: agent.pid,
    process: agent.pid === undefined ? undefined : identity(agent.pid),
    get last() {
      return last;
    },
    get written() {
      return taken;
    },
    attach(after, to) {
      handlers = to;
      attached.resolve(catchUp(after, to));
    },
    write(lineId, message) {
      if (lineId <= taken) return;
      const line = stdinLine(message);
      taken = lineId;
      void agent.writeLine(line).then(() => {
        written = Math.max(written, lineId);
        handlers?.written(written);
      });
    },
    acknowledge(upTo) {
      if (exit !== undefined && upTo >= last) forget();
    },
    stop: (patience) => void agent.stop(patience),
    abandon: () => void agent.stop({ eofMs: 0, termMs: 0 }),
  };
  return { run, abandon: (patience) => abandon(agent, run, () => handlers !== undefined, patience) };
}

/** Nobody may ever attach: what the agent still says must not keep it from ending. */
async function abandon(agent: Agent, run: Run, isAttached: () => boolean, patience: StopPatience): Promise<unknown> {
  if (!isAttached()) run.attach(0, { output() {}, exited() {}, written() {}, away() {} });
  return agent.stop(patience);
}
