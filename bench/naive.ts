/** The naive relay, as most are built: readline, JSON.parse, JSON.stringify of an envelope and `ws.send` for each viewer. No log, no auth. */
import { createInterface } from "node:readline";
import { WebSocketServer } from "ws";
import { isJsonObject } from "../src/protocol/json.ts";
import { answerBench, eventsOf, startAgent } from "./measured.ts";

const SESSION = crypto.randomUUID();
const agent = startAgent();
const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false, backlog: 4096 });
let seq = 0;

createInterface({ input: agent.stdout, crlfDelay: Number.POSITIVE_INFINITY }).on("line", (line) => {
  const payload: unknown = JSON.parse(line);
  const event_type = isJsonObject(payload) ? payload["type"] : undefined;
  seq += 1;
  const head = { type: "event", session_id: SESSION, seq, event_type, origin: "AGENT_EVENT", source: "agent" };
  for (const viewer of server.clients) viewer.send(JSON.stringify({ ...head, timestamp_ms: Date.now(), payload }));
});

server.on("listening", () => {
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : undefined;
  process.send?.({ ready: true, port });
});

answerBench({ go: (request) => agent.go(eventsOf(request)), close: () => setImmediate(process.exit) });
