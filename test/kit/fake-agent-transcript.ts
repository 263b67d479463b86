import { existsSync, readFileSync } from "node:fs";
import { SKIPPED_SENDS_FILE } from "./fake-agent-spec.ts";
import { type Message, part, readStdin, text, writeLine } from "./fake-agent-wire.ts";

interface Entry {
  readonly dir: string;
  readonly msg: Message;
  /** The JSON text of `msg`, exactly as recorded. */
  readonly raw: string;
  readonly code?: number | null;
  readonly signal?: string | null;
}

/**
 * Replays a recorded dialogue. Ids that the file's own host sent (request ids, uuids of user messages) are replaced in the lines that
 * follow by the ids that really came. An `initialize` that the recording does not have is answered by itself.
 */
export async function replayTranscript(path: string, atEnd: "wait" | "exit"): Promise<void> {
  const entries = readFileSync(path, "utf8").split("\n").filter(Boolean).map(parseEntry);
  const inbox = createInbox();
  const ids = new Map<string, string>();
  let diesByItself = atEnd === "exit";
  for (const [index, entry] of entries.entries()) {
    if (entry.dir === "recv") writeLine(replaceIds(entry.raw, ids));
    else if (entry.dir === "send") {
      rememberIds(ids, entry.msg, await inbox.next(entry.msg, index));
      diesByItself ||= subtypeOf(entry.msg) === "end_session";
    } else if (entry.dir === "send_raw") diesByItself = true;
    else if (entry.dir === "exit") {
      if (!diesByItself) await inbox.ended;
      if (entry.signal) process.kill(process.pid, entry.signal as NodeJS.Signals);
      process.exit(entry.code ?? 0);
    }
  }
}

function parseEntry(line: string): Entry {
  const entry: Entry = JSON.parse(line);
  const start = line.indexOf('"msg":');
  return { ...entry, raw: start === -1 ? "" : line.slice(start + '"msg":'.length, line.lastIndexOf("}")) };
}

function subtypeOf(message: Message): string {
  return text(part(message, "request"), "subtype");
}

function replaceIds(raw: string, ids: ReadonlyMap<string, string>): string {
  let replaced = raw;
  for (const [recorded, real] of ids) replaced = replaced.replaceAll(JSON.stringify(recorded), JSON.stringify(real));
  return replaced;
}

function rememberIds(ids: Map<string, string>, recorded: Message, real: Message): void {
  for (const name of ["request_id", "uuid"]) {
    const from = text(recorded, name);
    const to = text(real, name);
    if (from !== "" && to !== "" && from !== to) ids.set(from, to);
  }
}

/** What came on stdin and was not waited for yet. */
function createInbox() {
  const waiting: Message[] = [];
  let wake = (): void => {};
  process.on("SIGUSR2", () => wake());
  const ended = new Promise<void>((resolve) => {
    readStdin((message) => {
      waiting.push(message);
      wake();
    }, resolve);
    process.on("SIGTERM", resolve);
    process.on("SIGINT", resolve);
  });

  function take(wanted: Message): Message | undefined {
    const index = waiting.findIndex((message) => isAlike(message, wanted));
    if (index !== -1) return waiting.splice(index, 1)[0];
    const unasked = waiting.findIndex((message) => subtypeOf(message) === "initialize");
    if (unasked !== -1) answerInitialize(waiting.splice(unasked, 1)[0]);
    return undefined;
  }

  return {
    ended,
    async next(wanted: Message, index: number): Promise<Message> {
      for (;;) {
        if (isSkipped(index)) return wanted;
        const found = take(wanted);
        if (found !== undefined) return found;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}

function isSkipped(index: number): boolean {
  return existsSync(SKIPPED_SENDS_FILE) && readFileSync(SKIPPED_SENDS_FILE, "utf8").split("\n").includes(String(index));
}

function isAlike(message: Message, wanted: Message): boolean {
  return message["type"] === wanted["type"] && subtypeOf(message) === subtypeOf(wanted);
}

function answerInitialize(request: Message | undefined): void {
  const response = {
    subtype: "success",
    request_id: text(request, "request_id"),
    response: { commands: [], models: [] },
  };
  writeLine(JSON.stringify({ type: "control_response", response }));
}
