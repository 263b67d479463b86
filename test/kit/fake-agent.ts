#!/usr/bin/env node
/** The fake agent. What it does is described in fake-agent-spec.ts. */
import { randomUUID } from "node:crypto";
import { closeSync, writeSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createHistory } from "./fake-agent-history.ts";
import type { FakeBehaviour } from "./fake-agent-spec.ts";
import { type Message, part, readStdin, recordPipes, startJournal, text } from "./fake-agent-wire.ts";

const flags = process.argv.slice(2);
const flag = (name: string): string | undefined =>
  flags.find((argument) => argument.startsWith(`${name}=`))?.slice(name.length + 1);
const behaviour: FakeBehaviour = JSON.parse(flag("--fake") ?? "{}");

async function main(): Promise<void> {
  if (flags.includes("--version")) {
    process.stdout.write("9.9.9 (Fake Agent)\n");
    return;
  }
  if (behaviour.recordsPipes === true) recordPipes(process.env.HOME ?? ".");
  if (behaviour.journal !== undefined) startJournal(behaviour.journal);
  if (behaviour.stderr !== undefined) writeSync(2, behaviour.stderr);
  if (behaviour.exitCode !== undefined) process.exit(behaviour.exitCode);
  if (behaviour.startDelayMs !== undefined) await delay(behaviour.startDelayMs);
  if (behaviour.ignoreSigterm === true) process.on("SIGTERM", () => {});
  if (behaviour.ignoreEof === true || behaviour.neverRead === true) setInterval(() => {}, 60_000);
  const { transcripts, transcript = transcripts && join(transcripts, basename(process.cwd())) } = behaviour;
  if (transcript !== undefined) {
    const { replayTranscript } = await import("./fake-agent-transcript.ts");
    return replayTranscript(transcript, behaviour.atEnd ?? "wait");
  }
  if (behaviour.neverRead === true) return;
  if (behaviour.closeStdin === true) {
    setInterval(() => {}, 60_000);
    closeSync(0);
    return;
  }
  await converse();
}

/** Turns one after the other, and control requests at any time. */
async function converse(): Promise<void> {
  const { createControl } = await import("./fake-agent-control.ts");
  const { runUserTurn } = await import("./fake-agent-user-turn.ts");
  const history = createHistory(flag("--session-id"), flag("--resume"));
  const conversation = {
    sessionId:
      (flags.includes("--fork-session") ? undefined : flag("--resume")) ?? flag("--session-id") ?? randomUUID(),
    userUuids: [],
    showsPreviews: flags.includes("--include-partial-messages"),
  };
  const queue: Message[] = [];
  let turns: Promise<void> | undefined;
  let isAtEnd = false;

  const control = createControl({
    conversation,
    answersInitialize: behaviour.silentInitialize !== true,
    queuedUuids: () => queue.map((message) => text(message, "uuid")),
  });

  async function takeTurns(): Promise<void> {
    for (let message = queue.shift(); message !== undefined; message = queue.shift()) {
      await runUserTurn(message, { conversation, control, history, echoes: flags.includes("--replay-user-messages") });
    }
    turns = undefined;
    if (isAtEnd && behaviour.ignoreEof !== true) process.exit(0);
  }

  readStdin(
    (message) => {
      if (message["type"] !== "user") return control.take(message);
      if (text(part(message, "message"), "role") !== "user") process.exit(1);
      queue.push(message);
      control.noteQueued(text(message, "uuid"));
      turns ??= takeTurns();
    },
    () => {
      isAtEnd = true;
      control.streamClosed();
      if (turns === undefined && behaviour.ignoreEof !== true) process.exit(0);
    },
  );
}

await main();
