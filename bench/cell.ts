import { join } from "node:path";
import type { JsonObject } from "../src/protocol/json.ts";
import type { Contender, Setup } from "./contenders.ts";
import type { Corpus } from "./corpus.ts";
import { agentCpuMicros, machineCpuMicros } from "./machine.ts";
import type { Program } from "./program.ts";

/** One contender with so many viewers, measured in one round. */
export interface Measurement {
  readonly contender: string;
  readonly viewers: number;
  /** Lines that the agent wrote. */
  readonly events: number;
  /** Of what could have come, previews included, the share that did: a viewer that is late may lose previews, and nothing else. */
  readonly deliveredShare: number;
  readonly wallMs: number;
  /** CPU of the server's process for each event that came, in microseconds; of that, its main thread's. */
  readonly cpuMicrosPerEvent: number;
  readonly mainMicrosPerEvent: number;
  /** The same for the other processes, where the system tells: they must not be the bottleneck. */
  readonly agentMicrosPerEvent: number | undefined;
  readonly viewersMicrosPerEvent: number;
  readonly maxRssBytes: number;
  /** What the rest of the machine used meanwhile, as a share of all its cores. */
  readonly foreignShare: number | undefined;
}

export interface CellPlan {
  readonly contender: Contender;
  readonly viewers: number;
  readonly events: number;
  readonly warmUpEvents: number;
}

const numberOf = (object: JsonObject, field: string): number => Number(object[field]);

/** Starts a fresh server, warms it up, measures one turn. @throws Error when something is missing or out of order: the run is void */
export async function measureCell(
  plan: CellPlan,
  setup: Setup,
  corpus: Corpus,
  viewers: Program,
): Promise<Measurement> {
  const running = await plan.contender.start(setup);
  const { server } = running;
  try {
    await viewers.ask("open", { ...running.viewers, viewers: plan.viewers });
    const turn = async (events: number): Promise<JsonObject> => {
      await viewers.ask("reset");
      const finished = viewers.ask("finished");
      await Promise.all([running.go(events), finished]);
      return finished;
    };
    await turn(plan.warmUpEvents);
    if (setup.profileDir !== undefined) await server.ask("startProfile");
    const before = await marks(server, viewers);
    const seen = await turn(plan.events);
    const after = await marks(server, viewers);
    if (setup.profileDir !== undefined) {
      const name = `${plan.contender.name}-${plan.viewers}-${Date.now()}.cpuprofile`;
      await server.ask("stopProfile", { path: join(setup.profileDir, name) });
    }
    return judge(plan, corpus, seen, before, after);
  } finally {
    await viewers.ask("drop");
    await running.close();
  }
}

type Marks = Awaited<ReturnType<typeof marks>>;

async function marks(server: Program, viewers: Program) {
  const [ofServer, ofViewers] = await Promise.all([server.ask("mark"), viewers.ask("mark")]);
  return {
    atMs: performance.timeOrigin + performance.now(),
    cpu: numberOf(ofServer, "cpuMicros"),
    main: numberOf(ofServer, "mainMicros"),
    rss: numberOf(ofServer, "maxRssBytes"),
    viewers: numberOf(ofViewers, "cpuMicros"),
    agent: agentCpuMicros(server.pid),
    own: process.cpuUsage(),
    machine: machineCpuMicros(),
  };
}

function judge(plan: CellPlan, corpus: Corpus, seen: JsonObject, before: Marks, after: Marks): Measurement {
  const { contender, viewers, events } = plan;
  const name = `${contender.name} with ${viewers} viewers`;
  if (seen["fault"] !== undefined) throw new Error(`${name}: ${seen["fault"]}`);
  const expected = corpus.count(events);
  // Besides the corpus: init and the echo.
  const durable = expected.durable + 2;
  if (seen["durableLeast"] !== durable || seen["durableMost"] !== durable) {
    throw new Error(`${name}: ${seen["durableLeast"]} to ${seen["durableMost"]} durable events instead of ${durable}`);
  }
  const cameEvents = numberOf(seen, "previews") / viewers + expected.durable;
  const perEvent = (micros: number): number => micros / cameEvents;
  const wallMs = numberOf(seen, "endedAtMs") - before.atMs;
  const cpu = after.cpu - before.cpu;
  const agent = after.agent === undefined || before.agent === undefined ? undefined : after.agent - before.agent;
  const viewersCpu = after.viewers - before.viewers;
  const machine = after.machine && before.machine && after.machine.busy - before.machine.busy;
  const own = after.own.user + after.own.system - before.own.user - before.own.system;
  const total = after.machine && before.machine && after.machine.total - before.machine.total;
  return {
    contender: contender.name,
    viewers,
    events,
    deliveredShare: cameEvents / events,
    wallMs,
    cpuMicrosPerEvent: perEvent(cpu),
    mainMicrosPerEvent: perEvent(after.main - before.main),
    agentMicrosPerEvent: agent === undefined ? undefined : perEvent(agent),
    viewersMicrosPerEvent: perEvent(viewersCpu),
    maxRssBytes: after.rss,
    foreignShare: machine && total ? Math.max(0, machine - cpu - (agent ?? 0) - viewersCpu - own) / total : undefined,
  };
}
