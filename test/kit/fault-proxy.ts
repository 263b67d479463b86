import { connect, createServer, type Socket } from "node:net";

/** A TCP proxy that misbehaves as a test says: the place for faults, which src/ has none of. */
export interface FaultProxy extends AsyncDisposable {
  readonly port: number;
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** Cuts both sides of every connection, with a reset. */
  cut(): void;
  /** The next connection is cut after the server (or the client) has sent so many bytes through it. */
  cutNextAfter(bytes: number, from?: "server" | "client"): void;
  /** From now on nothing passes in either direction, and no side is told: a half-open connection. */
  blackhole(): void;
  /** New connections are cut at once, until told otherwise: the server is away. */
  refuse(isRefused: boolean): void;
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
  const budgets: { readonly bytes: number; readonly from: "server" | "client" }[] = [];
  let silent = false;
  let isRefused = false;
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
    if (isRefused) return void client.resetAndDestroy();
    const server = connect({ host: "127.0.0.1", port: typeof target === "number" ? target : target() });
    const pair: Pair = { client, server };
    const budget = budgets.shift() ?? { bytes: Number.POSITIVE_INFINITY, from: "server" };
    let left = budget.bytes;
    pairs.add(pair);
    const forward = (from: "server" | "client", to: Socket, chunk: Buffer): void => {
      if (silent) return;
      const allowed = from === budget.from ? chunk.subarray(0, left) : chunk;
      if (from === budget.from) left -= allowed.length;
      if (left > 0) pass(to, allowed);
      else to.write(allowed, () => drop(pair));
    };
    client.on("data", (chunk) => forward("client", server, chunk));
    server.on("data", (chunk) => forward("server", client, chunk));
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
    cutNextAfter: (bytes, from = "server") => void budgets.push({ bytes, from }),
    refuse(now) {
      isRefused = now;
    },
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
