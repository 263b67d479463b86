import { monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { SessionState } from "../protocol/events.ts";
import type { Sessions } from "../sessions/port.ts";
import type { Live } from "./live.ts";

const STATES: readonly SessionState[] = [
  "starting",
  "idle",
  "running",
  "requires_action",
  "hibernated",
  "failed",
  "ended",
];
const PAGE = 1_000;
/** How often the loop is asked; its histogram counts this wait as part of each delay. */
const LOOP_RESOLUTION_MS = 20;

export interface Metrics {
  eventsSent(transport: "websocket" | "sse", count: number): void;
  command(eventType: string, outcome: "accepted" | "duplicate" | "refused"): void;
  http(method: string, route: string, status: number, seconds: number): void;
  /** Prometheus text. */
  text(): Promise<{ readonly body: string; readonly contentType: string }>;
  close(): void;
}

async function countByState(sessions: Sessions): Promise<ReadonlyMap<SessionState, number>> {
  const counts = new Map<SessionState, number>(STATES.map((state) => [state, 0]));
  let cursor: string | undefined;
  do {
    const page = await sessions.list({ tenant: undefined, limit: PAGE, ...(cursor !== undefined && { cursor }) });
    for (const { state } of page.sessions) counts.set(state, (counts.get(state) ?? 0) + 1);
    cursor = page.next;
  } while (cursor !== undefined);
  return counts;
}

const lateSeconds = (delayNs: number): number => Math.max(0, delayNs / 1e9 - LOOP_RESOLUTION_MS / 1e3);

/** A server's numbers, in a registry of its own: several servers in one process do not mix. */
export function createMetrics(sessions: Sessions, live: Live): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  loop.enable();
  new Gauge({
    name: "patchbay_sessions",
    help: "Sessions by state",
    labelNames: ["state"],
    registers,
    async collect() {
      for (const [state, count] of await countByState(sessions)) this.set({ state }, count);
    },
  });
  new Gauge({
    name: "patchbay_connections",
    help: "Open sockets and streams",
    labelNames: ["transport"],
    registers,
    collect() {
      this.set({ transport: "websocket" }, live.count("websocket"));
      this.set({ transport: "sse" }, live.count("sse"));
    },
  });
  new Gauge({
    name: "patchbay_event_loop_lag_seconds",
    help: "How late the event loop was since the last scrape",
    labelNames: ["quantile"],
    registers,
    collect() {
      this.set({ quantile: "0.5" }, lateSeconds(loop.percentile(50)));
      this.set({ quantile: "0.99" }, lateSeconds(loop.percentile(99)));
      this.set({ quantile: "1" }, lateSeconds(loop.max));
      loop.reset();
    },
  });
  new Gauge({
    name: "patchbay_resident_memory_bytes",
    help: "Memory of the server process",
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  const events = new Counter({
    name: "patchbay_events_sent_total",
    help: "Events written to clients",
    labelNames: ["transport"],
    registers,
  });
  const commands = new Counter({
    name: "patchbay_commands_total",
    help: "Commands of clients",
    labelNames: ["event_type", "outcome"],
    registers,
  });
  const http = new Histogram({
    name: "patchbay_http_request_duration_seconds",
    help: "HTTP requests, without sockets and streams",
    labelNames: ["method", "route", "status"],
    buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10],
    registers,
  });
  return {
    eventsSent: (transport, count) => events.inc({ transport }, count),
    command: (eventType, outcome) => commands.inc({ event_type: eventType, outcome }),
    http: (method, route, status, seconds) => http.observe({ method, route, status: String(status) }, seconds),
    text: async () => ({ body: await registry.metrics(), contentType: registry.contentType }),
    close: () => loop.disable(),
  };
}
