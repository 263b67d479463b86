// A small MCP server on stdin and stdout: one tool, `ping`, which answers with the variable SECRET.
import { createInterface } from "node:readline";

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "ping", version: "1" },
  }),
  "tools/list": () => ({ tools: [{ name: "ping", description: "answers", inputSchema: { type: "object" } }] }),
  "tools/call": () => ({ content: [{ type: "text", text: `pong ${process.env.SECRET}` }] }),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const outcome = answer ? { result: answer(params ?? {}) } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...outcome })}\n`);
});
