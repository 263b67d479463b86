/** `generator.c` for machines without a C compiler: the same dialogue and lines, always written in blocks so that it keeps up. */
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const BLOCK_BYTES = 64 * 1024;

function put(bytes: Uint8Array): void {
  for (let offset = 0; offset < bytes.length; ) {
    try {
      offset += writeSync(1, bytes, offset);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
    }
  }
}

const say = (message: object): void => put(Buffer.from(`${JSON.stringify(message)}\n`));

function linesOf(corpus: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let start = 0, end = corpus.indexOf(10); end !== -1; start = end + 1, end = corpus.indexOf(10, start)) {
    lines.push(corpus.subarray(start, end + 1));
  }
  return lines;
}

function emit(lines: readonly Buffer[], count: number): void {
  let block: Buffer[] = [];
  let used = 0;
  for (let index = 0; index < count; index++) {
    const line = lines[index % lines.length] ?? Buffer.alloc(0);
    block.push(line);
    used += line.length;
    if (used < BLOCK_BYTES && index < count - 1) continue;
    put(Buffer.concat(block));
    block = [];
    used = 0;
  }
}

function takeTurn(message: string, session_id: string, lines: readonly Buffer[]): void {
  const uuid = /"uuid":"([^"]*)"/.exec(message)?.[1] ?? "";
  const named = { session_id, user_message_uuids: [uuid] };
  const init = { tools: [], mcp_servers: [], model: "bench", permissionMode: "default" };
  say({ type: "system", subtype: "init", ...init, claude_code_version: "2.1.332", ...named });
  const echo = { message: { role: "user", content: "bench" }, parent_tool_use_id: null };
  say({ type: "user", ...echo, session_id, uuid, isReplay: true });
  emit(lines, Number(/bench:(\d+)/.exec(message)?.[1] ?? 0));
  const result = { is_error: false, duration_ms: 1, num_turns: 1, result: "", stop_reason: "end_turn" };
  say({ type: "result", subtype: "success", ...result, total_cost_usd: 0, terminal_reason: "completed", ...named });
}

function answer(message: string): void {
  const request_id = /"request_id":"([^"]*)"/.exec(message)?.[1] ?? "";
  const response = { commands: [], models: [], account: {} };
  say({ type: "control_response", response: { subtype: "success", request_id, response } });
}

if (process.argv.includes("--version")) {
  process.stdout.write("2.1.332 (Claude Code)\n");
} else {
  const flag = process.argv.find((argument) => /^--(session-id|resume)=/.test(argument));
  const sessionId = flag?.slice(flag.indexOf("=") + 1) ?? "00000000-0000-4000-8000-000000000000";
  const lines = linesOf(readFileSync(process.env["BENCH_CORPUS"] ?? ""));
  createInterface({ input: process.stdin }).on("line", (message) => {
    if (message.includes('"type":"control_request"')) answer(message);
    else if (message.includes('"type":"user"')) takeTurn(message, sessionId, lines);
  });
}
