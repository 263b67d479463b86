import { existsSync, readFileSync } from "node:fs";
import { watch as watchFolder } from "node:fs/promises";
import { join } from "node:path";
import { waitUntil } from "../../src/agents/process-group.ts";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import type { ClientSession, IncomingRequest, Sent, SessionEvent, SystemEvent } from "../../src/client/index.ts";
import type { SystemPayloads } from "../../src/protocol/events.ts";

type SystemOf<T extends keyof SystemPayloads> = Extract<SystemEvent, { event_type: T }>;

/** A session of the real CLI, with everything that it ever showed. */
export interface Watched extends Disposable {
  readonly session: ClientSession;
  /** Where the agent works, absolute. */
  readonly folder: string;
  /** Sends a message; resolves when its end has come to `events` too. */
  send(...message: Parameters<ClientSession["send"]>): Sent;
  /** Every event from the first one, as the client gave it. */
  readonly events: readonly SessionEvent[];
  /** Broker events of that type so far. */
  all<T extends keyof SystemPayloads>(type: T): readonly SystemOf<T>[];
  /** Lines of the agent of that type so far. */
  lines(type: string): readonly SessionEvent[];
  /** The first event that fits, past or future. */
  first(what: string, fits: (event: SessionEvent) => boolean): Promise<SessionEvent>;
  /** The event that ended the turn. */
  end(turnId: string): Promise<SessionEvent>;
  /** Terminal events so far, as `[turn, type]`, in order. */
  ends(): readonly (readonly [turnId: string, type: string])[];
  /** The first request of the agent that was not handed out yet. */
  request(): Promise<IncomingRequest>;
  /** Lets every tool run, now and later. */
  allowAll(): void;
  /** Ids under which the CLI has known this conversation. */
  cliSessionIds(): readonly string[];
  /** The text that previews of the turn have shown. */
  previewText(turnId: string): string;
  /** Pid of the newest agent. */
  pid(): number;
  /** Content of a file that the agent makes in its folder, as soon as there is any. */
  file(name: string): Promise<string>;
}

const PATIENCE_MS = 60_000;

export function watch(session: ClientSession, folder: string): Watched {
  const events: SessionEvent[] = [];
  const requests: IncomingRequest[] = [];
  const stop = new AbortController();
  let wake = Promise.withResolvers<void>();
  let failure: unknown;
  let allowsAll = false;
  const woken = (): void => {
    wake.resolve();
    wake = Promise.withResolvers();
  };
  const read = async (): Promise<void> => {
    for await (const event of session.events({ after: 0, signal: stop.signal })) {
      events.push(event);
      woken();
    }
  };
  read().catch((error: unknown) => {
    failure = error;
    woken();
  });
  const leave = session.onRequest(async (request) => {
    if (allowsAll) await request.allow();
    else requests.push(request);
    woken();
  });

  async function until<T>(what: string, look: () => T | undefined): Promise<T> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error(`no ${what}; last events:\n${tail()}`)), PATIENCE_MS);
    late.promise.catch(() => undefined);
    try {
      for (;;) {
        const found = look();
        if (found !== undefined) return found;
        if (failure !== undefined) throw failure;
        await Promise.race([wake.promise, late.promise]);
      }
    } finally {
      clearTimeout(timer);
    }
  }
  const tail = (): string =>
    events
      .filter((event) => event.preview !== true)
      .slice(-8)
      .map((event) => `${event.seq} ${event.event_type} ${JSON.stringify(event.payload).slice(0, 250)}`)
      .join("\n");
  const isEnd = (event: SessionEvent): boolean =>
    event.origin === "SYSTEM_EVENT" && (event.event_type === "turn.completed" || event.event_type === "turn.failed");
  const all = <T extends keyof SystemPayloads>(type: T): readonly SystemOf<T>[] => {
    const isWanted = (event: SessionEvent): event is SystemOf<T> =>
      event.origin === "SYSTEM_EVENT" && event.event_type === type;
    return events.filter(isWanted);
  };

  const end: Watched["end"] = (turnId) =>
    until(`end of ${turnId}`, () => events.find((event) => isEnd(event) && event.turn_id === turnId));
  const send: Watched["send"] = (...message) => {
    const sent = session.send(...message);
    const seen = sent.then(async (outcome) => {
      await end(outcome.turnId);
      return outcome;
    });
    // Whoever waits is told; a test that failed elsewhere first must not count as unhandled.
    seen.catch(() => undefined);
    return Object.assign(seen, { turnId: sent.turnId, accepted: sent.accepted });
  };

  return {
    session,
    folder,
    send,
    events,
    all,
    lines: (type) => events.filter((event) => event.origin === "AGENT_EVENT" && event.event_type === type),
    first: (what, fits) => until(what, () => events.find(fits)),
    end,
    ends: () => events.filter(isEnd).map((event) => [event.turn_id ?? "", event.event_type] as const),
    request: () => until("request", () => requests.shift()),
    allowAll() {
      allowsAll = true;
      for (const request of requests.splice(0)) void request.allow();
    },
    cliSessionIds() {
      const started = all("agent.started").map((event) => event.payload.cli_session_id);
      const lines = events
        .filter((event) => event.origin === "AGENT_EVENT")
        .map((event) => ("session_id" in event.payload ? String(event.payload.session_id) : ""));
      return [...new Set([...started, ...lines])].filter((id) => id !== "");
    },
    previewText: (turnId) =>
      events
        .filter((event) => event.preview === true && event.turn_id === turnId)
        .map(deltaOf)
        .join(""),
    pid() {
      const newest = all("agent.started").at(-1);
      if (newest === undefined) throw new Error("no agent has started");
      return newest.payload.pid;
    },
    file: (name) => fileIn(folder, name),
    [Symbol.dispose]() {
      leave();
      stop.abort();
    },
  };
}

function deltaOf(event: SessionEvent): string {
  if (event.origin !== "AGENT_EVENT" || event.event_type !== "stream_event") return "";
  const { delta } = event.payload.event;
  return typeof delta === "object" && delta !== null && "text" in delta ? String(delta.text) : "";
}

async function fileIn(folder: string, name: string): Promise<string> {
  const path = join(folder, name);
  const content = (): string => (existsSync(path) ? readFileSync(path, "utf8").trim() : "");
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Error(`no ${name} in ${folder}`)), PATIENCE_MS);
  const changes = watchFolder(folder, { signal: stop.signal });
  try {
    for (;;) {
      // The watch begins with the first step of its iterator, so that is taken before the first look.
      const change = changes.next();
      change.catch(() => undefined);
      const text = content();
      if (text !== "") return text;
      await change;
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

/** True when the process has gone within a few seconds; a zombie counts as gone. */
export async function isGone(pid: number): Promise<boolean> {
  const gone = (): boolean => {
    const entry = readProcess(pid);
    return entry === undefined || !isAlive(entry);
  };
  await waitUntil(gone);
  return gone();
}
