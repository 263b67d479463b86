import { connect, createServer, type Socket } from "node:net";

/** A TCP proxy that misbehaves as a test says: the place for faults, which src/ has none of. */
export interface FaultProxy extends AsyncDisposable {
  readonly port: number;
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** Cuts both sides of every connection, with a reset. */
  cut(): void;
  /** The next connection is cut after the server has sent so many bytes through it. */
  cutNextAfter(bytes: number): void;
  /** From now on nothing passes in either direction, and no side is told: a half-open connection. */
  blackhole(): void;
  /** Delays everything by so many milliseconds. */
  delay(ms: number): void;
  /** Connections made so far. */
  connections(): number;
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

/** Starts a proxy in front of a server on loopback; a function says anew for each connection where it is. */
export async function startFaultProxy(target: number | (() => number)): Promise<FaultProxy> {
  const pairs = new Set<Pair>();
  const budgets: number[] = [];
  let silent = false;
  let delayMs = 0;
  let count = 0;

  const drop = (pair: Pair): void => {
    pairs.delete(pair);
    pair.client.resetAndDestroy();
    pair.server.resetAndDestroy();
  };
  const pass = (to: Socket, chunk: Buffer): void => {
    if (delayMs === 0) to.write(chunk);
    else setTimeout(() => to.write(chunk), delayMs);
  };
  const listener = createServer((client) => {
    count += 1;
    const server = connect({ host: "127.0.0.1", port: typeof target === "number" ? target : target() });
    const pair: Pair = { client, server };
    let budget = budgets.shift() ?? Number.POSITIVE_INFINITY;
    pairs.add(pair);
    client.on("data", (chunk) => {
      if (!silent) pass(server, chunk);
    });
    server.on("data", (chunk) => {
      if (silent) return;
      const allowed = chunk.subarray(0, budget);
      budget -= allowed.length;
      if (budget > 0) return pass(client, allowed);
      client.write(allowed, () => drop(pair));
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on("error", () => {});
      one.on("close", () => {
        if (silent) return;
        pairs.delete(pair);
        other.end();
      });
    }
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  return {
    port: address.port,
    url: `http://127.0.0.1:${address.port}`,
    cut: () => {
      for (const pair of [...pairs]) drop(pair);
    },
    cutNextAfter: (bytes) => void budgets.push(bytes),
    blackhole: () => {
      silent = true;
    },
    delay: (ms) => {
      delayMs = ms;
    },
    connections: () => count,
    async [Symbol.asyncDispose]() {
      for (const pair of [...pairs]) drop(pair);
      await new Promise<void>((resolve) => listener.close(() => resolve()));
    },
  };
}
