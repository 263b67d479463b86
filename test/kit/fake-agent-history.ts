import { appendFileSync, existsSync, mkdirSync, readFileSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Message, text, writeLine } from "./fake-agent-wire.ts";

/** The transcript file that the CLI keeps under CLAUDE_CONFIG_DIR: here only the user messages. */
export interface History {
  has(uuid: string): boolean;
  add(sessionId: string, message: Message): void;
}

/** Ends the process as the CLI does, when a new id has a transcript already, or a resumed one has none. */
export function createHistory(newId: string | undefined, resumedId: string | undefined): History {
  const uuids = new Set<string>();
  const stored = newId === undefined ? undefined : historyFile(newId);
  if (newId !== undefined && stored !== undefined && existsSync(stored)) {
    writeSync(2, `Error: Session ID ${newId} is already in use.\n`);
    process.exit(1);
  }
  if (resumedId !== undefined) {
    const file = historyFile(resumedId);
    if (file === undefined || !existsSync(file)) refuseResume(resumedId);
    else
      for (const line of readFileSync(file, "utf8").split("\n").filter(Boolean))
        uuids.add(text(JSON.parse(line), "uuid"));
  }
  return {
    has: (uuid) => uuids.has(uuid),
    add(sessionId, message) {
      const file = historyFile(sessionId);
      uuids.add(text(message, "uuid"));
      if (file === undefined) return;
      mkdirSync(dirname(file), { recursive: true });
      appendFileSync(file, `${JSON.stringify({ ...message, sessionId })}\n`);
    },
  };
}

function refuseResume(id: string): never {
  const errors = [`No conversation found with session ID: ${id}`];
  writeLine(
    JSON.stringify({ type: "result", subtype: "error_during_execution", is_error: true, session_id: id, errors }),
  );
  process.exit(1);
}

function historyFile(sessionId: string): string | undefined {
  const config = process.env["CLAUDE_CONFIG_DIR"];
  return config === undefined
    ? undefined
    : join(config, "projects", process.cwd().replaceAll(/[^A-Za-z0-9]/g, "-"), `${sessionId}.jsonl`);
}
