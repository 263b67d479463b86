import { connect, createServer, type Socket } from "node:net";

/** A proxy as they stand on the way to many servers: it cuts what is idle, and what has lasted too long, however busy it is. */
export interface ImpatientProxy extends AsyncDisposable {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /** Connections cut so far. */
  cuts(): { readonly idle: number; readonly old: number };
}

export interface Impatience {
  /** A connection on which nothing passes for this long, in milliseconds, is cut. */
  readonly idleMs: number;
  /** So is one that is older. */
  readonly ageMs: number;
}

export async function startImpatientProxy(port: number, { idleMs, ageMs }: Impatience): Promise<ImpatientProxy> {
  const open = new Set<Socket>();
  let idle = 0;
  let old = 0;

  const listener = createServer((client) => {
    const server = connect({ host: "127.0.0.1", port });
    const sides = [client, server];
    const cut = (): void => {
      for (const side of sides) side.resetAndDestroy();
    };
    const idleTimer = setTimeout(() => {
      idle += 1;
      cut();
    }, idleMs);
    const ageTimer = setTimeout(() => {
      old += 1;
      cut();
    }, ageMs);
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      open.add(from);
      from.on("data", (chunk) => {
        idleTimer.refresh();
        to.write(chunk);
      });
      from.on("end", () => to.end());
      from.on("error", () => {});
      from.on("close", () => {
        open.delete(from);
        clearTimeout(idleTimer);
        clearTimeout(ageTimer);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    cuts: () => ({ idle, old }),
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      await new Promise<void>((resolve) => listener.close(() => resolve()));
    },
  };
}
