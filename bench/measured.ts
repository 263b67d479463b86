/** What the programs under test (floor.ts, naive.ts, ours.ts) share: they answer the bench over their IPC channel, and are measured by the OS. */
import { type ChildProcess, spawn } from "node:child_process";
import { isJsonObject, type JsonObject } from "../src/protocol/json.ts";
import { createProfiler } from "./profiler.ts";

/** CPU time that the operating system has counted so far for this process and all its threads, without its children. */
interface Mark {
  readonly [field: string]: number;
  readonly cpuMicros: number;
  /** Of that, the main thread's: the event loop. */
  readonly mainMicros: number;
  /** The most memory the process has had. */
  readonly maxRssBytes: number;
}

function takeMark(): Mark {
  const whole = process.cpuUsage();
  const main = process.threadCpuUsage();
  return {
    cpuMicros: whole.user + whole.system,
    mainMicros: main.user + main.system,
    maxRssBytes: process.resourceUsage().maxRSS * 1024,
  };
}

/** After a close nobody listens any more. */
function tell(message: object): void {
  if (process.connected) process.send?.(message);
}

type Answers = Readonly<Record<string, (request: JsonObject) => unknown>>;

/** Answers `{id, ask, …}` of the bench with `{id, …}`, marks and profiles among them. An error is answered as `{id, error}`. */
export function answerBench(own: Answers): void {
  const profiler = createProfiler();
  const answers: Answers = {
    mark: takeMark,
    startProfile: () => profiler.start(),
    stopProfile: ({ path }) => profiler.stop(String(path)),
    ...own,
  };
  // The bench is gone, by whatever way: nothing of it stays behind.
  process.on("disconnect", () => process.exit());
  process.on("message", (request: unknown) => {
    if (!isJsonObject(request) || typeof request["ask"] !== "string") return;
    void Promise.resolve(request)
      .then(answers[request["ask"]])
      .then(
        (reply) => tell({ ...(isJsonObject(reply) && reply), id: request["id"] }),
        (error: unknown) => tell({ id: request["id"], error: String(error) }),
      );
  });
}

/** Starts the agent as a server would: a child with pipes. Its stdin takes a user message for each turn. */
export function startAgent(): { readonly stdout: NonNullable<ChildProcess["stdout"]>; go(events: number): void } {
  const agent = spawn(process.env["BENCH_AGENT"] ?? "", [], { stdio: ["pipe", "pipe", "inherit"] });
  return {
    stdout: agent.stdout,
    go(events) {
      const message = { role: "user", content: `bench:${events}` };
      agent.stdin.write(`${JSON.stringify({ type: "user", message, uuid: crypto.randomUUID() })}\n`);
    },
  };
}

/** The number of events that a `go` asks for. */
export const eventsOf = (request: JsonObject): number => Number(request["events"]);
