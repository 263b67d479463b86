import { Command } from "commander";
import type { ClientSession } from "../client/index.ts";
import { openClient, type ServerFlags, withServerFlags } from "./client.ts";
import { failureLine } from "./failure.ts";
import { createPrompts } from "./prompts.ts";
import { createShow } from "./show.ts";
import { openTerminal, type Terminal } from "./terminal.ts";

interface AttachFlags extends ServerFlags {
  readonly after?: string;
  readonly json?: boolean;
}

/** A second Ctrl+C within this time detaches. */
const TWICE_MS = 2_000;

/** Ctrl+C once interrupts the turn, twice detaches; neither ends the session. */
function handleInterrupts(terminal: Terminal, session: ClientSession, detach: () => void): void {
  let lastMs = Number.NEGATIVE_INFINITY;
  terminal.onInterrupt(() => {
    const isSecond = performance.now() - lastMs < TWICE_MS;
    lastMs = performance.now();
    if (isSecond) return detach();
    terminal.line("\nInterrupting the turn; Ctrl+C again detaches, the session goes on.", "dim");
    session.interrupt().catch((error: unknown) => terminal.line(failureLine(error), "red"));
  });
}

async function attach(session: ClientSession, terminal: Terminal, flags: AttachFlags): Promise<void> {
  const controller = new AbortController();
  const after = flags.after === "head" ? "head" : Number(flags.after ?? 0);
  const show = createShow(terminal, { userLines: true });
  session.onRequest(createPrompts(terminal, "leave"));
  handleInterrupts(terminal, session, () => controller.abort());
  terminal.onLine((line) => {
    if (line.trim() === "") return;
    session.send(line).accepted.catch((error: unknown) => terminal.line(failureLine(error), "red"));
  });
  void terminal.ended.then(() => {
    // Ctrl+D detaches. Input that never was a terminal's just ends, and watching goes on.
    if (process.stdin.isTTY) controller.abort();
  });
  for await (const event of session.events({
    after,
    signal: controller.signal,
    onGap: (first) => terminal.line(`History before ${first} was removed.`, "dim"),
  })) {
    if (flags.json === true) process.stdout.write(`${JSON.stringify(event)}\n`);
    else show(event);
  }
}

/** `patchbay attach <id>`: watches a session, sends what is typed, answers what it asks. */
export function attachCommand(): Command {
  const command = new Command("attach")
    .description("watch a session and take part: lines are messages, Ctrl+C interrupts, Ctrl+D detaches")
    .argument("<id>", "the session")
    .option("--after <seq>", "start after this number, or at head", /^(head|\d{1,15})$/, "0")
    .option("--json", "print the events as JSON lines; talk to the person on stderr");
  return withServerFlags(command).action(async (id: string, flags: AttachFlags) => {
    const terminal = openTerminal({
      input: process.stdin,
      output: flags.json === true ? process.stderr : process.stdout,
    });
    const { client } = openClient(flags, {
      onStatus(status) {
        if (status.state === "waiting")
          terminal.line(`\nConnection lost; trying again in ${Math.ceil(status.retryInMs / 1000)} s.`, "dim");
      },
    });
    try {
      await attach(client.session(id), terminal, flags);
    } finally {
      client.close();
      terminal.close();
    }
  });
}
