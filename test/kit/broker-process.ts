#!/usr/bin/env node
/**
 * A whole server as a process of its own, to be killed: `broker-process.ts <options as JSON>`. Prints `{url, pid}` as one line once it
 * listens, or `{error: {code, message}}` and exits with 1. SIGTERM and SIGINT drain it.
 */
import { createBroker } from "../../src/broker.ts";
import { problemBody } from "../../src/protocol/problems.ts";

const say = (value: unknown): boolean => process.stdout.write(`${JSON.stringify(value)}\n`);

async function main(): Promise<void> {
  const patience = { eofMs: 1_000, termMs: 1_000 };
  const broker = await createBroker(JSON.parse(process.argv[2] ?? "{}"), {
    sessions: { stopPatience: patience, closePatience: patience },
  });
  // The exit code says whether close() let go of everything.
  const stop = (): void => void broker.close();
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  // A test that ran out of time leaves nobody to end this: it ends with the test's own process.
  process.stdin
    .resume()
    .once("end", () => process.exit(1))
    .unref();
  say({ url: broker.url, pid: process.pid });
}

main().catch((error: unknown) => {
  say({ error: problemBody(error) });
  process.exit(1);
});
