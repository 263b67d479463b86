import { INBOUND_LIMIT_BYTES, QUERY_LIMIT_BYTES } from "../protocol/limits.ts";

/** One thing that has to work before traffic makes sense. */
export interface ReadinessCheck {
  readonly ok: boolean;
  /** What is wrong and what to do; shown to anybody, so without secrets and paths. */
  readonly message?: string;
}

export interface Readiness {
  readonly ok: boolean;
  readonly checks: Readonly<Record<string, ReadinessCheck>>;
}

export interface ApiConfig {
  /** The package's version, for /healthz. */
  readonly version: string;
  /** Whether the server can do its work: store writable, agent found. */
  readonly ready: () => Promise<Readiness>;
  /** PEM texts; undefined = plain HTTP. */
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  /** Exact origins of browsers that may call, besides our own. */
  readonly allowedOrigins: readonly string[];
  /** Host names (with or without port) we answer to, besides loopback and IP literals. */
  readonly allowedHosts: readonly string[];
  /** Largest frame or body of a query, and of anything else. */
  readonly queryLimitBytes: number;
  readonly inboundLimitBytes: number;
  readonly heartbeatMs: number;
  /** An event stream gets a comment this often. */
  readonly commentMs: number;
  /** A socket or stream that takes nothing for this long is closed. */
  readonly slowReaderMs: number;
  /** Bytes that may wait in one socket, over all its subscriptions. */
  readonly inFlightBytes: number;
  /** A socket without credentials has this long for its `auth` frame. */
  readonly authTimeoutMs: number;
  /** How long closing sockets may take when the server stops. */
  readonly drainMs: number;
  readonly subscriptionsPerSocket: number;
  /** Commands of one socket that wait for their ack; its next frame is read when one has it. */
  readonly commandsInFlight: number;
}

export const API_DEFAULTS: Omit<ApiConfig, "version" | "ready"> = Object.freeze({
  tls: undefined,
  allowedOrigins: [],
  allowedHosts: [],
  queryLimitBytes: QUERY_LIMIT_BYTES,
  inboundLimitBytes: INBOUND_LIMIT_BYTES,
  heartbeatMs: 15_000,
  commentMs: 15_000,
  slowReaderMs: 30_000,
  inFlightBytes: 256 * 1024,
  authTimeoutMs: 10_000,
  drainMs: 4_000,
  subscriptionsPerSocket: 1_000,
  commandsInFlight: 64,
});

/** What the composer has to say; the rest has defaults. */
export type ApiOptions = Pick<ApiConfig, "version" | "ready"> & Partial<ApiConfig>;
