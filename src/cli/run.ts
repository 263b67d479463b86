import { Command } from "commander";
import type { Client, ClientSession, SessionEvent, SessionInput, TurnOutcome } from "../client/index.ts";
import { openClient, type ServerFlags, withServerFlags } from "./client.ts";
import { createPrompts } from "./prompts.ts";
import { createShow } from "./show.ts";
import { openTerminal, type Terminal } from "./terminal.ts";

interface RunFlags extends ServerFlags {
  readonly model?: string;
  readonly permissionMode?: string;
  readonly cwd?: string;
  readonly name?: string;
  readonly session?: string;
  readonly end?: boolean;
  readonly json?: boolean;
}

function sessionInput({ model, permissionMode, cwd, name }: RunFlags): SessionInput {
  const agent = {
    ...(model !== undefined && { model }),
    ...(permissionMode !== undefined && { permission_mode: permissionMode }),
  };
  return { agent, ...(cwd !== undefined && { cwd }), ...(name !== undefined && { name }) };
}

/** A first Ctrl+C interrupts the turn; a second one leaves. */
function interruptOnce(terminal: Terminal, session: ClientSession): void {
  let asked = false;
  terminal.onInterrupt(() => {
    if (asked) process.exit(130);
    asked = true;
    terminal.line("\nInterrupting the turn; Ctrl+C again leaves it running.", "dim");
    session.interrupt().catch((error: unknown) => terminal.line(String(error), "red"));
  });
}

function isGood({ outcome, reason, result }: TurnOutcome): boolean {
  return outcome === "completed" && reason !== "interrupted" && reason !== "withdrawn" && result?.is_error !== true;
}

/** Shows events until the turn is over. Everything up to its end was shown when this resolves. */
async function follow(
  events: AsyncIterable<SessionEvent>,
  turnId: string,
  show: (event: SessionEvent) => void,
): Promise<void> {
  let waitFor = turnId;
  for await (const event of events) {
    show(event);
    if (event.origin !== "SYSTEM_EVENT") continue;
    if (event.event_type === "turn.failed" && event.payload.turn_id === waitFor) return;
    if (event.event_type === "turn.completed" && event.payload.turn_id === waitFor) {
      if (event.payload.folded_into === undefined) return;
      waitFor = event.payload.folded_into;
    }
  }
}

async function runTurn(client: Client, terminal: Terminal, prompt: string, flags: RunFlags): Promise<boolean> {
  const session =
    flags.session === undefined ? await client.createSession(sessionInput(flags)) : client.session(flags.session);
  terminal.line(`session ${session.id}`, "dim");
  session.onRequest(createPrompts(terminal, "deny"));
  interruptOnce(terminal, session);
  const show = createShow(terminal, { userLines: false });
  const events = session.events({ after: "head" });
  const sent = session.send(prompt);
  const shown = follow(
    events,
    sent.turnId,
    flags.json === true ? (event) => void process.stdout.write(`${JSON.stringify(event)}\n`) : show,
  );
  const [outcome] = await Promise.all([sent, shown]);
  if (flags.end === true) await session.end();
  else terminal.line(`Go on with: patchbay attach ${session.id}`, "dim");
  return isGood(outcome);
}

/** `patchbay run "<prompt>"`: exit code 0 when the turn went well. */
export function runCommand(): Command {
  const command = new Command("run")
    .description("start a session, send it a prompt, and stream what it does; asks permissions and questions here")
    .argument("<prompt>", "what to say")
    .option("--model <name>", "the model")
    .option("--permission-mode <mode>", "default, acceptEdits, plan, …")
    .option("--cwd <folder>", "working directory, relative to the tenant's folder")
    .option("--name <name>", "name of the session")
    .option("--session <id>", "go on with this session instead of a new one")
    .option("--end", "end the session afterwards")
    .option("--json", "print the events as JSON lines; talk to the person on stderr");
  return withServerFlags(command).action(async (prompt: string, flags: RunFlags) => {
    const terminal = openTerminal({
      input: process.stdin,
      output: flags.json === true ? process.stderr : process.stdout,
    });
    const { client } = openClient(flags);
    try {
      if (!(await runTurn(client, terminal, prompt, flags))) process.exitCode = 1;
    } finally {
      client.close();
      terminal.close();
    }
  });
}
