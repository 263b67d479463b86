import { setTimeout as delay } from "node:timers/promises";
import { startScriptedModel } from "../../src/demo/model.ts";
import { seededRandom } from "../kit/seeded-random.ts";
import { callServer } from "../kit/server.ts";
import { check } from "./checker.ts";
import { type Driver, FAKE_TEXTS, queryOf, startDriver, uuidOf } from "./driver.ts";
import { doFault, type FaultName } from "./faults.ts";
import { readJournals, readLog } from "./gather.ts";
import type { History, SessionHistory } from "./history.ts";
import { postCommand, startPagesClient, startStreamClient } from "./http-clients.ts";
import { processesOf, socketsBelow, zombiesOf } from "./processes.ts";
import { isRealAgent, REAL_SCRIPT, REAL_TEXTS, realEnvironment } from "./real.ts";
import { type Client, type Place, startSocketClient } from "./socket-client.ts";
import type { Violation } from "./violation.ts";
import { type Watched, watch } from "./watched.ts";
import { makeWorld, type RunnerMode, type World } from "./world.ts";

export interface ChaosOptions {
  readonly seed: number;
  readonly sessions: number;
  readonly mode: RunnerMode;
  /** The path of the real CLI, whose model is then a scripted one; without it the agents are fake and much faster. */
  readonly claude?: string;
  /** How long faults go on. */
  readonly durationMs: number;
  /** And at least so many of them. */
  readonly leastFaults?: number;
  /** Told of each fault. */
  readonly progress?: (line: string) => void;
}

export interface ChaosReport {
  readonly seed: number;
  readonly faults: ReadonlyMap<FaultName, number>;
  readonly events: number;
  readonly commands: number;
  readonly agents: number;
  readonly disk: string;
  readonly violations: readonly Violation[];
}

/** What must come when all faults are over, comes in this time. */
const PATIENCE_MS = 60_000;

const isStart = ({ event_type }: { readonly event_type: string }): boolean => event_type === "agent.started";

interface Crew {
  readonly session: Watched;
  readonly clients: readonly Client[];
  readonly driver: Driver;
}

/** Faults for a while, then peace, then the checker (docs/reliability.md). Everything is chosen by the seed but the machine's own timing. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const random = seededRandom(options.seed);
  const model = options.claude === undefined ? undefined : await startScriptedModel({ script: REAL_SCRIPT });
  const world = await makeWorld(
    options.mode,
    options.claude !== undefined && model !== undefined
      ? { claudeBin: options.claude, agentEnv: realEnvironment(model.url) }
      : {},
  );
  const stuck: string[] = [];
  const faults = new Map<FaultName, number>();
  try {
    await world.start();
    const crews = await Promise.all(
      Array.from({ length: options.sessions }, () => startCrew(world, random, model !== undefined)),
    );
    const clients = (): Client[] => crews.flatMap((crew) => [...crew.clients]);
    const agents = (): readonly number[] =>
      model === undefined ? world.agents() : crews.map(({ session }) => session.agent ?? 0).filter(isRealAgent);
    const untilMs = performance.now() + options.durationMs;
    for (let done = 0; performance.now() < untilMs || done < (options.leastFaults ?? 0); done += 1) {
      await someProgress(crews, random);
      const name = await doFault({ world, random, clients, agents, stuck: (what) => stuck.push(what) });
      faults.set(name, (faults.get(name) ?? 0) + 1);
      options.progress?.(name);
    }
    const told = (): readonly string[] | undefined => model?.turns().map(({ body }) => JSON.stringify(body));
    const history = await settle(world, crews, random, stuck, told);
    return {
      seed: options.seed,
      faults,
      events: history.sessions.reduce((sum, { log }) => sum + log.length, 0),
      commands: history.sessions.reduce((sum, { sent }) => sum + sent.length, 0),
      agents: history.sessions.reduce((sum, { log }) => sum + log.filter(isStart).length, 0),
      disk: world.disk.kind,
      violations: check(history),
    };
  } finally {
    await world.stopRunner();
    await model?.close();
    await world.remove();
  }
}

async function startCrew(world: World, random: () => number, isReal: boolean): Promise<Crew> {
  const { status, body } = await callServer(world.url(), "POST", "/v1/sessions", { body: {} });
  if (status !== 201) throw new Error(`no session: ${status}`);
  const session = watch(body.id, () => {});
  const place: Place = {
    get port() {
      // Nobody listens there: who comes between two servers is refused.
      return world.isUp() ? Number(new URL(world.url()).port) : 1;
    },
    up: () => world.whenUp(),
  };
  const socket = { random, isCut: false, pauses: false, answers: false };
  const senders = await Promise.all([
    startSocketClient(place, session, { ...socket, name: "cut", isCut: true, answers: true }),
    startSocketClient(place, session, { ...socket, name: "slow", pauses: true, answers: true }),
  ]);
  const clients = [
    ...senders,
    startStreamClient(place, session, { name: "stream", random }),
    startPagesClient(place, session, { name: "pages", random }),
  ];
  const driver = startDriver(session, {
    random,
    texts: isReal ? REAL_TEXTS : FAKE_TEXTS,
    senders,
    post: (command) => void postCommand(place, session, command),
  });
  return { session, clients, driver };
}

/** Between two faults something happens, in all sessions together. */
async function someProgress(crews: readonly Crew[], random: () => number): Promise<void> {
  const wanted = 10 + random() * 400;
  const limitMs = 3000;
  await Promise.race(
    crews.map(({ session }) => session.progress.reach(session.progress.value + wanted / crews.length, limitMs)),
  );
}

async function settle(
  world: World,
  crews: readonly Crew[],
  random: () => number,
  stuck: string[],
  toldModel: () => readonly string[] | undefined,
): Promise<History> {
  for (const { clients, driver } of crews) {
    driver.stop();
    for (const client of clients) client.calm();
  }
  const probes = await Promise.all(crews.map((crew) => endInPeace(crew, random, stuck)));
  const sessions: SessionHistory[] = [];
  for (const [index, { session }] of crews.entries()) {
    const log = await readLog(world.url(), session.id);
    const last = log.at(-1)?.seq ?? 0;
    const read = await session.until(
      () => session.readers.every((reader) => lastOf(reader.visits) >= last),
      PATIENCE_MS,
    );
    if (!read) stuck.push(`${session.id}: not all readers came to the end of the log`);
    const journals = readJournals(world.journals, session.id);
    const told = toldModel();
    sessions.push(session.history({ log, journals, probe: probes[index] ?? "", ...(told && { told }) }));
  }
  const leftBehind = await tearDown(world, crews, stuck);
  return { sessions, killedRunners: [...world.killedRunners], leftBehind, stuck };
}

const lastOf = (visits: SessionHistory["readers"][number]["visits"]): number =>
  visits.reduce((last, { after, sights }) => Math.max(last, after, sights.at(-1)?.seq ?? 0), 0);

/** All that was asked for ends; then the session does one more turn. */
async function endInPeace({ session, clients }: Crew, random: () => number, stuck: string[]): Promise<string> {
  const open = (): string[] => [...session.turns].filter((turn) => !session.endedTurns.has(turn));
  const unsettled = (): number => [...session.commands.values()].filter((command) => !command.settled).length;
  if (!(await session.until(() => open().length === 0 && unsettled() === 0, PATIENCE_MS))) {
    stuck.push(`${session.id}: ${unsettled()} commands and the turns ${open().join(", ")} did not end`);
  }
  const probe = uuidOf(random);
  clients[0]?.send?.(queryOf(session, probe, `probe ${probe}`));
  if (!(await session.until(() => session.endedTurns.has(probe), PATIENCE_MS))) {
    stuck.push(`${session.id}: it does no further turn`);
  }
  return probe;
}

async function tearDown(world: World, crews: readonly Crew[], stuck: string[]): Promise<string[]> {
  await Promise.all(crews.flatMap(({ clients }) => clients.map((client) => client.stop())));
  for (const { session } of crews) await callServer(world.url(), "DELETE", `/v1/sessions/${session.id}`);
  const zombies = zombiesOf([world.serverPid(), world.runnerPid() ?? 0]);
  const code = await world.end("SIGTERM");
  if (code !== 0) stuck.push(`the last server ended with ${code}; it said: ${world.said()}`);
  await world.stopRunner();
  // The kernel takes a moment to let go of a process that was just killed.
  for (let tries = 0; processesOf(world.folder).length > 0 && tries < 20; tries += 1) await delay(50);
  return [...zombies, ...processesOf(world.folder), ...socketsBelow(world.folder)];
}
