#!/usr/bin/env node
/** A small MCP server on stdin and stdout. Its one tool, `ask`, asks the person for a name and says what came back. */
import { createInterface } from "node:readline";

const FORM = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
/** Ids of calls that wait for a person, by the id of our question. */
const waiting = new Map();

const METHODS = {
  initialize: ({ id, params }) =>
    say({
      id,
      result: {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "form", version: "1" },
      },
    }),
  "tools/list": ({ id }) =>
    say({
      id,
      result: {
        tools: [{ name: "ask", description: "asks a person", inputSchema: { type: "object", properties: {} } }],
      },
    }),
  "tools/call": ({ id }) => {
    const question = `question-${id}`;
    waiting.set(question, id);
    say({
      id: question,
      method: "elicitation/create",
      params: { message: "What is your name?", requestedSchema: FORM },
    });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  const { method, id } = message;
  if (Object.hasOwn(METHODS, method ?? "")) METHODS[method](message);
  else if (method === undefined && waiting.has(id)) {
    const text = `elicited ${JSON.stringify(message.result ?? message.error)}`;
    say({ id: waiting.get(id), result: { content: [{ type: "text", text }] } });
    waiting.delete(id);
  } else if (method !== undefined && id !== undefined) say({ id, result: {} });
}
