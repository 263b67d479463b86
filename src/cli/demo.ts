import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import type { Broker } from "../broker.ts";
import { connect } from "../client/index.ts";
import { uuid } from "../client/uuid.ts";
import { readConfiguration } from "../configuration.ts";
import type { ScriptedModel } from "../demo/model.ts";
import { BROKER_DEFAULTS } from "../options.ts";
import { BrokerError } from "../protocol/problems.ts";
import { VERSION } from "../version.ts";
import { untilStopped } from "./stop.ts";

const PORTS_TRIED = 100;
const FOLDER = "demo";

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen({ host: BROKER_DEFAULTS.host, port, exclusive: true }, () => probe.close(() => resolve(true)));
  });
}

async function nextFreePort(): Promise<number> {
  for (let port = BROKER_DEFAULTS.port; port < BROKER_DEFAULTS.port + PORTS_TRIED; port++)
    if (await isFree(port)) return port;
  throw new BrokerError(
    "port_in_use",
    `No free port from ${BROKER_DEFAULTS.port} on. Stop what holds them and try again.`,
  );
}

async function startBroker(dataDir: string, adminKey: string, model: ScriptedModel): Promise<Broker> {
  // The environment still says which CLI to run, and how much to log.
  const given = readConfiguration(process.env).broker;
  const { createBroker } = await import("../broker.ts");
  return createBroker({
    // Its data goes with it, and so must its agents.
    runner: "inline",
    ...given,
    host: BROKER_DEFAULTS.host,
    port: await nextFreePort(),
    dataDir,
    workspaceRoot: join(dataDir, "workspaces"),
    adminKey,
    logLevel: given.logLevel ?? "warn",
    agentEnv: {
      ...given.agentEnv,
      ANTHROPIC_BASE_URL: model.url,
      ANTHROPIC_API_KEY: "demo",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  });
}

async function makeSession(broker: Broker, token: string): Promise<string> {
  const client = connect({ url: broker.url, token });
  try {
    return (await client.sessions.create({ name: "Demo: a cart with a bug", cwd: FOLDER })).id;
  } finally {
    client.close();
  }
}

/** `patchbay demo`: the real server and the real CLI, with a scripted model instead of an account. Leaves nothing behind. */
export function demoCommand(): Command {
  return new Command("demo")
    .description("run the server with a scripted model: no account, no network, its own temporary data")
    .option("--json", "print one JSON line {url, pid, version, console_url, session_id} on stdout when ready")
    .action(async ({ json }: { json?: boolean }) => {
      const dataDir = await mkdtemp(join(tmpdir(), "patchbay-demo-"));
      const stopped = untilStopped();
      const { startScriptedModel } = await import("../demo/model.ts");
      const { demoScript } = await import("../demo/script.ts");
      const { writeDemoWorkspace } = await import("../demo/workspace.ts");
      try {
        await using model = await startScriptedModel({ script: demoScript, chunkDelayMs: 15 });
        await writeDemoWorkspace(join(dataDir, "workspaces", "default", FOLDER));
        const adminKey = uuid();
        const broker = await startBroker(dataDir, adminKey, model);
        try {
          const id = await makeSession(broker, adminKey);
          const consoleUrl = `${await broker.consoleUrl()}&session=${encodeURIComponent(id)}`;
          if (json === true) {
            console.log(
              JSON.stringify({
                url: broker.url,
                pid: process.pid,
                version: VERSION,
                console_url: consoleUrl,
                session_id: id,
              }),
            );
          }
          const tell = json === true ? console.error : console.log;
          tell(`Patchbay ${VERSION} demo: ${consoleUrl}`);
          tell("Open it and type one of: stream, test, fix, write, ask, background, agent, busy.");
          tell(
            `From another terminal: PATCHBAY_URL=${broker.url} PATCHBAY_TOKEN=${adminKey} npx patchbay attach ${id}`,
          );
          tell("Ctrl+C ends it and removes its data.");
          await stopped;
        } finally {
          await broker.close();
        }
      } finally {
        await rm(dataDir, { recursive: true, force: true, maxRetries: 3 });
      }
    });
}
