import type { FastifyRequest } from "fastify";
import type { Auth, Principal } from "../../auth/port.ts";
import type { Secrets } from "../../auth/secrets.ts";
import type { BrokerError } from "../../protocol/problems.ts";
import type { Action } from "../../protocol/roles.ts";
import type { Actor, Sessions } from "../../sessions/port.ts";
import type { AxonSql } from "./sql/axon-sql.ts";

/** What the HTTP server lends to this dialect. */
export interface RunloopHost {
  /** Who asks, if they may do this. @throws BrokerError unauthenticated, expired, rate_limited, forbidden */
  admit(request: FastifyRequest, action: Action): Promise<Principal>;
  actorOf(request: FastifyRequest, principal: Principal): Actor;
  readonly live: {
    add(connection: {
      readonly kind: "sse";
      principal(): Principal | undefined;
      close(problem: BrokerError): void;
      readonly closed: Promise<void>;
    }): void;
    /** Aborts when the server begins to stop. */
    readonly draining: AbortSignal;
  };
  readonly config: {
    readonly queryLimitBytes: number;
    readonly slowReaderMs: number;
    readonly commentMs: number;
    readonly inFlightBytes: number;
  };
  eventsSent(count: number): void;
}

type Value = string | number | bigint | null | Uint8Array;

/** The database, as far as devboxes need it. */
export interface Database {
  write(writes: readonly { readonly sql: string; readonly params: readonly Value[] }[]): Promise<void>;
  read(sql: string, params?: readonly Value[]): Promise<readonly Readonly<Record<string, Value>>[]>;
}

export interface RunloopOptions {
  /** How long `wait_for_status` holds a call before it answers 408. In milliseconds. */
  readonly holdMs: number;
  /** How long `create_and_await_running` waits before it answers with what there is. In milliseconds. */
  readonly createHoldMs: number;
  /** What becomes of `launch_commands`: left out with a line in the log, or the devbox is refused. */
  readonly launchCommands: "skip" | "refuse";
  /** How often devboxes whose time is over are looked for. In milliseconds. */
  readonly sweepMs: number;
}

export const RUNLOOP_DEFAULTS: RunloopOptions = Object.freeze({
  holdMs: 25_000,
  createHoldMs: 20_000,
  launchCommands: "skip",
  sweepMs: 1_000,
});

export interface RunloopParts {
  readonly auth: Auth;
  readonly sessions: Sessions;
  readonly database: Database;
  readonly options?: Partial<RunloopOptions>;
  readonly secrets: Omit<Secrets, "valueOf">;
  readonly sql: AxonSql;
  readonly report: (error: unknown) => void;
}
