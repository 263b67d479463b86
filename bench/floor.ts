/** The floor: reads the agent's pipe and writes the bytes to every viewer's socket. No logic; this code is its definition. */
import { createServer, type Socket } from "node:net";
import { answerBench, eventsOf, startAgent } from "./measured.ts";

const sockets = new Set<Socket>();
const agent = startAgent();
let full = 0;

function drained(): void {
  full -= 1;
  if (full === 0) agent.stdout.resume();
}

agent.stdout.on("data", (chunk: Buffer) => {
  for (const socket of sockets) {
    // As pipe() does: who is behind holds the agent up, so that memory stays bounded.
    if (socket.write(chunk)) continue;
    full += 1;
    socket.once("drain", drained);
  }
  if (full > 0) agent.stdout.pause();
});

const server = createServer({ noDelay: true }, (socket) => {
  sockets.add(socket);
  // An empty line tells the viewer that it is in: a connection that waits to be accepted would miss the start.
  socket.write("\n");
  socket.on("error", () => undefined);
  socket.on("close", () => sockets.delete(socket));
}).listen(0, "127.0.0.1", () => {
  const address = server.address();
  process.send?.({ ready: true, port: typeof address === "object" ? address?.port : undefined });
});

answerBench({ go: (request) => agent.go(eventsOf(request)), close: () => setImmediate(process.exit) });
