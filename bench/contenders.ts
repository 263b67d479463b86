import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { isJsonObject, stringField } from "../src/protocol/json.ts";
import { type Program, startProgram } from "./program.ts";

/** What every contender is given to work with. */
export interface Setup {
  /** A folder of this run; everything in it goes when the run ends. */
  readonly dir: string;
  /** The agent's executable. */
  readonly agent: string;
  readonly corpusPath: string;
  /** How the agent writes: a line for each write(2), or blocks. */
  readonly write: "line" | "block";
  /** Folder for CPU profiles of the servers' main threads, of measured turns only. */
  readonly profileDir: string | undefined;
}

/** A contender that is up: one session, no viewers yet, its agent not yet writing. */
export interface Running {
  readonly server: Program;
  /** Where viewers connect; `upgrade` is the head of the request that makes the connection a WebSocket. */
  readonly viewers: { readonly port: number; readonly upgrade?: string };
  /** Lets the agent write so many corpus lines, as one turn. */
  go(events: number): Promise<unknown>;
  close(): Promise<void>;
}

export interface Contender {
  readonly name: string;
  readonly start: (setup: Setup) => Promise<Running>;
}

const environment = (setup: Setup): Record<string, string> => ({
  BENCH_AGENT: setup.agent,
  BENCH_CORPUS: setup.corpusPath,
  BENCH_WRITE: setup.write,
});

function upgradeRequest(port: number, path: string, headers: Readonly<Record<string, string>> = {}): string {
  const all = {
    Host: `127.0.0.1:${port}`,
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    ...headers,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

async function startRelay(name: "floor" | "naive", setup: Setup): Promise<Running> {
  const server = await startProgram(`${name}.ts`, environment(setup));
  const port = Number(server.ready["port"]);
  return {
    server,
    viewers: name === "floor" ? { port } : { port, upgrade: upgradeRequest(port, "/") },
    go: (events) => server.ask("go", { events }),
    close: () => server.close(),
  };
}

async function startOurs(setup: Setup): Promise<Running> {
  const dataDir = mkdtempSync(join(setup.dir, "data-"));
  const key = `bench-${crypto.randomUUID()}-${crypto.randomUUID()}`;
  const env = { ...environment(setup), BENCH_DATA_DIR: dataDir, BENCH_KEY: key };
  const server = await startProgram("ours.ts", env);
  const port = Number(server.ready["port"]);
  const authorization = `Bearer ${key}`;
  const call = async (path: string, body: unknown): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}/v1/sessions${path}`, {
      method: "POST",
      headers: { authorization, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await response.text();
    if (!response.ok) throw new Error(`POST /v1/sessions${path}: ${response.status} ${answer}`);
    return JSON.parse(answer);
  };
  const created = await call("", {});
  const session = isJsonObject(created) ? stringField(created, "id") : undefined;
  if (session === undefined) throw new Error("POST /v1/sessions gave no id.");
  const headers = { Authorization: authorization, "Sec-WebSocket-Protocol": "patchbay.v1" };
  return {
    server,
    viewers: { port, upgrade: upgradeRequest(port, `/v1/ws?session=${encodeURIComponent(session)}`, headers) },
    go: (events) =>
      call(`/${encodeURIComponent(session)}/commands`, {
        id: crypto.randomUUID(),
        event_type: "query",
        payload: { text: `bench:${events}` },
      }),
    async close() {
      await server.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** The first is the floor and the second the naive relay: ratios are made to them. */
export const CONTENDERS: readonly Contender[] = [
  { name: "floor", start: (setup) => startRelay("floor", setup) },
  { name: "naive", start: (setup) => startRelay("naive", setup) },
  { name: "ours", start: startOurs },
];
