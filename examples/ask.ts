/**
 * One question, one answer: starts a session, lets it read but nothing else, and prints what it said.
 *
 *     PATCHBAY_URL=http://127.0.0.1:4400 PATCHBAY_TOKEN=<key> node examples/ask.ts "What is in this folder?"
 */
// In a program of your own: from "patchbay/client".
import { connect, type IncomingRequest } from "../src/client/index.ts";

const { PATCHBAY_URL: url = "http://127.0.0.1:4400", PATCHBAY_TOKEN: token = "" } = process.env;
const prompt = process.argv[2] ?? "Say hello.";

async function decide(request: IncomingRequest): Promise<void> {
  const answered =
    request.toolName === "Read" ? await request.allow() : await request.deny("This program only lets you read.");
  if (answered.outcome === "already_answered") console.error(`${answered.decidedBy} was first`);
}

const client = connect({ url, token });
const session = await client.createSession({ name: "example: ask" });
session.onRequest(decide);
const { outcome, reason, text } = await session.send(prompt);
console.log(text);
if (outcome === "failed") console.error(`failed: ${reason}`);
await session.end();
client.close();
