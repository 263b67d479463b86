import type { Principal } from "../../../auth/port.ts";
import { BrokerError } from "../../../protocol/problems.ts";
import { type NewDevbox, parseDevbox } from "../../../protocol/runloop.schema.ts";
import type { Actor, Session } from "../../../sessions/port.ts";
import { findAxon, type RunloopContext } from "../call.ts";
import { devboxIdOf } from "../system-events.ts";
import { type Launch, readLaunch } from "./launch.ts";
import type { Devbox } from "./record.ts";

/** One creation: who wants it, and under which id a second try of the same call comes. */
export interface Creation {
  readonly context: RunloopContext;
  readonly principal: Principal;
  readonly actor: Actor;
  readonly body: unknown;
  readonly requestId: string | undefined;
}

/** @throws BrokerError bad_request for a name that no secret of the tenant has */
async function checkSecrets({ context, principal }: Creation, { secrets }: NewDevbox): Promise<void> {
  for (const [variable, name] of Object.entries(secrets ?? {})) {
    const there = await context.secrets.read(principal.tenant, name).then(
      () => true,
      () => false,
    );
    if (there) continue;
    throw new BrokerError("bad_request", `secrets.${variable}: there is no secret ${name}. Create it first.`, {
      details: { field: "secrets" },
    });
  }
}

async function newDevbox(input: NewDevbox, session: Session, context: RunloopContext): Promise<Devbox> {
  const before = await context.devboxes.rows.countOf(session.id);
  const launch = input.launch_parameters ?? {};
  const idle = launch.lifecycle?.after_idle ?? launch.after_idle;
  const nowMs = Date.now();
  const keepAlive = launch.keep_alive_time_seconds ?? undefined;
  return {
    id: before === 0 ? devboxIdOf(session.id) : `${devboxIdOf(session.id)}_${before + 1}`,
    tenant: session.tenant,
    session: session.id,
    created_at_ms: nowMs,
    name: input.name ?? null,
    metadata: input.metadata ?? {},
    launch_parameters: launch,
    transitions: [{ status: "provisioning", transition_time_ms: nowMs }],
    phase: "new",
    resumes_on_event: launch.lifecycle?.resume_triggers?.axon_event === true,
    ...(idle && { on_idle: idle.on_idle }),
    ...(keepAlive !== undefined && { keep_alive_s: keepAlive }),
    ...(keepAlive !== undefined && !idle && { expires_at_ms: nowMs + keepAlive * 1000 }),
  };
}

async function tellSkipped(devbox: Devbox, session: Session, { skipped }: Launch): Promise<void> {
  for (const [index, text] of skipped.entries()) {
    const payload = Buffer.from(JSON.stringify({ stream: "broker", text }));
    const note = {
      id: `${devbox.id}:skipped:${index}`,
      event_type: "agent.log",
      origin: "SYSTEM_EVENT",
      payload,
    } as const;
    await session.note(note, { id: "broker" });
  }
}

/** @throws BrokerError bad_request: one agent at a time */
function refuseSecond(session: Session): void {
  if (session.agentStanding() === "none") return;
  throw new BrokerError("bad_request", "mounts: this axon has an agent already. Shut its devbox down first.", {
    details: { field: "mounts" },
  });
}

/** What is asked for, by somebody who may. @throws BrokerError bad_request, not_available, forbidden, agent_arg_refused */
async function readCreation(creation: Creation): Promise<{ input: NewDevbox; launch: Launch }> {
  const { context, principal } = creation;
  const input = parseDevbox(creation.body);
  await checkSecrets(creation, input);
  const launch = readLaunch(input, context.options);
  context.auth.allow(principal, context.auth.actionOfCreation({ agent: launch.agent }));
  if (input.secrets) context.auth.allow(principal, "administer");
  return { input, launch };
}

async function mount(creation: Creation, input: NewDevbox, launch: Launch, request: string | undefined) {
  const { context, principal, actor } = creation;
  const session = await findAxon(context, principal, launch.axonId);
  refuseSecond(session);
  const devbox = await newDevbox(input, session, context);
  await context.devboxes.rows.insert(devbox, request);
  context.devboxes.adopt(devbox);
  const idle = input.launch_parameters?.lifecycle?.after_idle ?? input.launch_parameters?.after_idle;
  try {
    await tellSkipped(devbox, session, launch);
    const { agent, cwd } = launch;
    const rest = {
      ...(cwd !== undefined && { cwd }),
      ...(idle && { idle_timeout_s: idle.idle_time_seconds }),
      ...(input.secrets && { secrets: input.secrets }),
    };
    await session.mount({ agent, ...rest }, actor);
  } catch (error) {
    await context.devboxes.forget(devbox);
    throw error;
  }
  return devbox;
}

/** Makes a devbox, or finds the one that this call has made before. */
export function createCreator(): (creation: Creation) => Promise<Devbox> {
  const underWay = new Map<string, Promise<Devbox>>();
  /** Of two devboxes for one axon the second finds the first one there. */
  const lines = new Map<string, Promise<unknown>>();
  const make = async (creation: Creation, request: string | undefined): Promise<Devbox> => {
    const { input, launch } = await readCreation(creation);
    const before = lines.get(launch.axonId) ?? Promise.resolve();
    const made = before.then(() => mount(creation, input, launch, request));
    const quiet = made.then(
      () => undefined,
      () => undefined,
    );
    lines.set(launch.axonId, quiet);
    void quiet.then(() => lines.get(launch.axonId) === quiet && lines.delete(launch.axonId));
    return made;
  };
  return (creation) => {
    const { context, principal, requestId } = creation;
    if (requestId === undefined) return make(creation, undefined);
    const request = JSON.stringify([principal.tenant, principal.id, requestId]);
    const known = underWay.get(request);
    if (known !== undefined) return known;
    const made = context.devboxes.rows.findByRequest(request).then((before) => before ?? make(creation, request));
    underWay.set(request, made);
    const done = (): void => void underWay.delete(request);
    made.then(done, done);
    return made;
  };
}
