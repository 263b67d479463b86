import type { Principal } from "../auth/port.ts";
import { BrokerError } from "../protocol/problems.ts";

/** How often expiry is looked for: live connections end within a second of it. */
const SWEEP_MS = 500;

/** A socket or stream that stays open, or an answer that takes long to send. */
interface LiveConnection {
  readonly kind: "websocket" | "sse" | "download" | "runner";
  /** Undefined until it has authenticated. */
  principal(): Principal | undefined;
  close(problem: BrokerError): void;
  readonly closed: Promise<void>;
}

/** All open connections: who is revoked or expired is told and closed, and so is everybody when the server stops. */
export interface Live {
  add(connection: LiveConnection): void;
  count(kind: LiveConnection["kind"]): number;
  /** Ends the connections of a principal that was revoked. */
  revoke(principalId: string): void;
  /** Aborts when draining begins. */
  readonly draining: AbortSignal;
  /** Closes all as `draining`. Resolves when they are closed, or after so many milliseconds. */
  drain(withinMs: number): Promise<void>;
}

const over = (): BrokerError => new BrokerError("expired", "Your key or ticket has expired or was revoked.");
export const drainingProblem = (): BrokerError =>
  new BrokerError("draining", "The server is shutting down. Come back with the last seq you have.");

export function createLive(): Live {
  const connections = new Set<LiveConnection>();
  const draining = new AbortController();
  const sweep = setInterval(() => {
    const nowMs = Date.now();
    for (const connection of connections) {
      const expiresAtMs = connection.principal()?.expiresAtMs;
      if (expiresAtMs !== undefined && expiresAtMs <= nowMs) connection.close(over());
    }
  }, SWEEP_MS).unref();
  return {
    add(connection) {
      connections.add(connection);
      connection.closed.then(
        () => connections.delete(connection),
        () => connections.delete(connection),
      );
      if (draining.signal.aborted) connection.close(drainingProblem());
    },
    count: (kind) => [...connections].filter((connection) => connection.kind === kind).length,
    revoke(principalId) {
      for (const connection of connections) if (connection.principal()?.id === principalId) connection.close(over());
    },
    draining: draining.signal,
    async drain(withinMs) {
      clearInterval(sweep);
      draining.abort();
      for (const connection of connections) connection.close(drainingProblem());
      const all = Promise.all([...connections].map((connection) => connection.closed));
      const { promise: late, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, withinMs);
      await Promise.race([all, late]);
      clearTimeout(timer);
    },
  };
}
