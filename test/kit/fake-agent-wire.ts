import { appendFileSync, writeSync } from "node:fs";
import { join } from "node:path";

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

/** Blocks until stdout has taken everything, so that nothing is lost when the process ends right after. */
export function writeBytes(bytes: Uint8Array): void {
  record("stdout", bytes);
  for (let offset = 0; offset < bytes.length; ) offset += writeSync(1, bytes, offset);
}

export function writeLine(json: string): void {
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
      if (line !== "") onLine(parse(line));
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
