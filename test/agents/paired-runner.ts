import { mkdirSync } from "node:fs";
import { type Duplex, duplexPair } from "node:stream";
import { processLauncher } from "../../src/agents/process.ts";
import { createHost, type Host, type HostParts } from "../../src/agents/runner/host.ts";
import { createStreamLink } from "../../src/agents/runner/link.ts";
import {
  createRemoteRunner,
  type RemoteRunner,
  type RemoteRunnerParts,
} from "../../src/agents/runner/remote-runner.ts";

/** How many bytes a wire carries in each direction before it breaks. */
export interface WireBudget {
  readonly toRunner: number;
  readonly toServer: number;
}

const UNLIMITED: WireBudget = { toRunner: Number.POSITIVE_INFINITY, toServer: Number.POSITIVE_INFINITY };

/** Two ends of a byte stream that can be cut in the middle of anything. */
export interface Wire {
  readonly server: Duplex;
  readonly runner: Duplex;
  /** How much the runner has been sent so far. */
  toRunnerBytes(): number;
  cut(): void;
  /** From now on nothing passes, and nobody is told. */
  blackhole(): void;
}

export function createWire(budget: WireBudget = UNLIMITED): Wire {
  const [server, serverSide] = duplexPair();
  const [runner, runnerSide] = duplexPair();
  let isSilent = false;
  let toRunnerBytes = 0;
  const ends = [server, serverSide, runner, runnerSide];
  const cut = (): void => {
    for (const end of ends) end.destroy();
  };
  function carry(from: Duplex, to: Duplex, limit: number): void {
    let left = limit;
    from.on("data", (chunk: Buffer) => {
      if (isSilent) return;
      const passed = chunk.subarray(0, left);
      left -= passed.length;
      if (to === runnerSide) toRunnerBytes += passed.length;
      if (passed.length > 0 && !to.write(passed)) {
        from.pause();
        to.once("drain", () => from.resume());
      }
      // What was passed on arrives; then both sides learn that the wire is broken.
      if (left <= 0) setImmediate(cut);
    });
    from.on("end", () => !isSilent && to.end());
    from.on("error", () => {});
    from.on("close", () => !isSilent && cut());
  }
  carry(serverSide, runnerSide, budget.toRunner);
  carry(runnerSide, serverSide, budget.toServer);
  for (const end of [server, runner]) end.on("close", () => !isSilent && setImmediate(cut));
  return {
    server,
    runner,
    cut,
    toRunnerBytes: () => toRunnerBytes,
    blackhole: () => {
      isSilent = true;
    },
  };
}

/** Runners in this process, one after the other, and servers that reach the one that is there now. */
export interface PairedRunners extends AsyncDisposable {
  host(): Host;
  /** The runner dies with its agents and all that it kept; the next link reaches another one. */
  replace(): Promise<void>;
  /** A server's side, linked. */
  server(parts?: Partial<RemoteRunnerParts>): Promise<RemoteRunner>;
  /** The wire of the newest link. */
  wire(): Wire;
  /** How many bytes the next wires carry, first one first. */
  readonly budgets: WireBudget[];
  /** Links made so far. */
  links(): number;
}

const NOW = { eofMs: 0, termMs: 0 };

export function makePairedRunners(folder: string, more: Partial<HostParts> = {}): PairedRunners {
  const settings = {
    dataDir: `${folder}/data`,
    workspaceRoot: `${folder}/workspaces`,
    binary: async (asked: string | undefined) => ({ command: asked ?? "" }),
  };
  const servers: RemoteRunner[] = [];
  const budgets: WireBudget[] = [];
  let count = 0;
  let links = 0;
  let wire = createWire();
  let host = makeHost();

  function makeHost(): Host {
    count += 1;
    const spoolFolder = `${folder}/spool-${count}`;
    mkdirSync(spoolFolder);
    return createHost({ launcher: processLauncher, settings, spoolFolder, about: {}, ...more });
  }

  return {
    host: () => host,
    wire: () => wire,
    links: () => links,
    budgets,
    async replace() {
      const dead = host;
      host = makeHost();
      wire.cut();
      await dead.stopAll(NOW, 0);
      await dead.close();
    },
    async server(parts = {}) {
      const runner = createRemoteRunner({
        name: "paired",
        epoch: 1,
        async connect() {
          links += 1;
          wire = createWire(budgets.shift());
          host.accept(createStreamLink(wire.runner));
          return { link: createStreamLink(wire.server) };
        },
        ...parts,
      });
      servers.push(runner);
      await runner.linked();
      return runner;
    },
    async [Symbol.asyncDispose]() {
      await host.stopAll(NOW, 0);
      for (const server of servers) await server.close();
      await host.close();
    },
  };
}
