import { hash } from "node:crypto";
import { appendFileSync, openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { basename, join } from "node:path";

/** A message of the stream-json dialogue, as far as the fake agent looks at it. */
export type Message = Readonly<Record<string, unknown>>;

export function isMessage(value: unknown): value is Message {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An object inside a message; empty when it is absent. */
export function part(value: unknown, name: string): Message {
  const found = isMessage(value) ? value[name] : undefined;
  return isMessage(found) ? found : {};
}

/** A string inside a message; empty when it is absent. */
export function text(value: unknown, name: string): string {
  const found = isMessage(value) ? value[name] : undefined;
  return typeof found === "string" ? found : "";
}

let recordFolder: string | undefined;

/** From now on everything that crosses stdin and stdout is also in `stdin.ndjson` and `stdout.ndjson` there, before anything is done about it. */
export function recordPipes(folder: string): void {
  recordFolder = folder;
}

function record(pipe: "stdin" | "stdout", bytes: Uint8Array | string): void {
  if (recordFolder !== undefined) appendFileSync(join(recordFolder, `${pipe}.ndjson`), bytes);
}

let journal: number | undefined;

/**
 * From now on every line that crosses stdin or stdout is in a journal of this process's own in that folder, `<session>.<pid>.ndjson`:
 * one of stdin when it has been read, one of stdout before it is written.
 */
export function startJournal(folder: string): void {
  const session = basename(process.env["HOME"] ?? "nobody");
  journal = openSync(join(folder, `${session}.${process.pid}.ndjson`), "a");
  note({ dir: "start", runner: process.ppid, others: othersOf(session, folder) });
}

/** Processes of this session that live now. Each has its file before it looks, so that of two which start together one sees the other. */
function othersOf(session: string, folder: string): number[] {
  const pids = readdirSync(folder)
    .filter((name) => name.startsWith(`${session}.`))
    .map((name) => Number(name.slice(session.length + 1).split(".")[0]));
  return pids.filter((pid) => pid !== process.pid && environmentOf(pid).includes(`/${session}\0`));
}

/** Empty for a process that is gone, and for a zombie. */
function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8");
  } catch {
    return "";
  }
}

/** Writes down that a user message is in the transcript now. */
export function noteTaken(uuid: string): void {
  note({ dir: "took", type: "user", uuid });
}

function noteLine(dir: "in" | "out", line: string): void {
  if (journal === undefined) return;
  const value = parsed(line);
  const requestId = text(value, "request_id") || text(part(value, "response"), "request_id");
  const uuid = text(value, "uuid");
  const names = { ...(uuid !== "" && { uuid }), ...(requestId !== "" && { request_id: requestId }) };
  note({ dir, type: text(value, "type"), body: hash("sha1", line, "base64"), ...names });
}

/** undefined where it is not JSON: an agent may print what it likes. */
function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function note(record: Message): void {
  // The clock of hrtime is the same for all processes of a machine.
  if (journal !== undefined)
    writeSync(journal, `${JSON.stringify({ at: Number(process.hrtime.bigint()) / 1e6, ...record })}\n`);
}

/** Blocks until stdout has taken everything, so that nothing is lost when the process ends right after. */
export function writeBytes(bytes: Uint8Array): void {
  record("stdout", bytes);
  for (let offset = 0; offset < bytes.length; ) offset += writeSync(1, bytes, offset);
}

export function writeLine(json: string): void {
  noteLine("out", json);
  writeBytes(Buffer.from(`${json}\n`));
}

/** Calls back with each stdin line. A line that is not JSON ends the process with code 1, as it ends the CLI. */
export function readStdin(onLine: (message: Message) => void, onEnd: () => void): void {
  let held = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (chunk: string) => {
    record("stdin", chunk);
    const lines = (held + chunk).split("\n");
    held = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") continue;
      noteLine("in", line);
      onLine(parse(line));
    }
  });
  process.stdin.on("end", onEnd);
}

function parse(line: string): Message {
  try {
    const value: unknown = JSON.parse(line);
    return isMessage(value) ? value : {};
  } catch {
    writeSync(2, "Error parsing streaming input line\n");
    process.exit(1);
  }
}
