import type { createApi } from "./api/server.ts";
import type { ResolvedOptions } from "./options.ts";
import { BrokerError } from "./protocol/problems.ts";

/** Connections that may wait to be accepted: Fastify's own 511 makes a storm of reconnects ten times slower (design 8). */
const LISTEN_BACKLOG = 4096;

type Listening = Awaited<ReturnType<typeof createApi>>;

/** Begins to listen; returns the bare origin. @throws BrokerError port_in_use, config_invalid */
export async function listen(app: Listening, { host, port, tlsCert }: ResolvedOptions): Promise<string> {
  try {
    await app.listen({ host, port, backlog: LISTEN_BACKLOG });
  } catch (cause) {
    throw listenProblem(cause, host, port);
  }
  const address = app.server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const shown = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host;
  return `${tlsCert === undefined ? "http" : "https"}://${shown.includes(":") ? `[${shown}]` : shown}:${bound}`;
}

function listenProblem(cause: unknown, host: string, port: number): unknown {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const details = { host, port };
  if (code === "EADDRINUSE") {
    return new BrokerError(
      "port_in_use",
      `${host}:${port} is in use. Stop what holds it, or choose another PATCHBAY_PORT (0 = any free one).`,
      { cause, details },
    );
  }
  if (code === "EACCES" || code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
    return new BrokerError(
      "config_invalid",
      `Cannot listen on ${host}:${port} (${code}). Correct PATCHBAY_HOST and PATCHBAY_PORT.`,
      { cause, details },
    );
  }
  return cause;
}
