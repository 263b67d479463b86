import { randomUUID } from "node:crypto";
import { createInlineRunner } from "../../src/agents/inline-runner.ts";
import { processLauncher } from "../../src/agents/process.ts";
import type { ForkSource, Runner, SessionPlace } from "../../src/agents/runner-port.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { AGENT_LINE_LIMIT_BYTES } from "../../src/protocol/limits.ts";
import { mirrorWrites, restoreTranscript } from "../../src/sessions/transcripts.ts";
import type { Store } from "../../src/store/port.ts";

/** A place with a home of its own, where real CLIs run for sessions whose transcripts go into one store. */
export interface MirroredCli {
  readonly runner: Runner;
  readonly store: Store;
  readonly sharedEnv: Readonly<Record<string, string>>;
}

/** `root` is a folder that no other place has. */
export function mirroredCli(root: string, command: string, modelUrl: string, store: Store): MirroredCli {
  const settings = { dataDir: `${root}/data`, workspaceRoot: `${root}/workspaces`, binary: async () => ({ command }) };
  return {
    runner: createInlineRunner({ launcher: processLauncher, settings, closePatience: { eofMs: 0, termMs: 0 } }),
    store,
    sharedEnv: {
      ANTHROPIC_API_KEY: "any",
      ANTHROPIC_BASE_URL: modelUrl,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      CLAUDE_CODE_MAX_RETRIES: "0",
    },
  };
}

/** One agent process, as a session drives it: what it mirrors is stored. */
export interface MirroredAgent {
  readonly lines: readonly JsonObject[];
  readonly resumed: boolean;
  /** Sends a user message under this uuid. */
  say(text: string, uuid?: string): void;
  /** The first line from now on that fits. */
  next(what: string, fits: (line: JsonObject) => boolean): Promise<JsonObject>;
  result(): Promise<JsonObject>;
  /** Resolves when it has read all that was sent: it has answered something sent later. */
  hasRead(): Promise<void>;
  /** Ends it in order, or by SIGKILL of its group. Resolves when all that it mirrored is stored. */
  end(how?: "eof" | "kill"): Promise<void>;
}

export const placeOf = (sessionId: string): SessionPlace => ({ tenant: "acme", sessionId });

/** Starts a session's CLI, with what the store has of its conversation. */
export async function startMirrored(
  { runner, store, sharedEnv }: MirroredCli,
  sessionId: string,
  wanted: { readonly cliSessionId: string; readonly fork?: ForkSource },
): Promise<MirroredAgent> {
  const place = placeOf(sessionId);
  const fork = await restoreTranscript(store, runner.files, place, wanted);
  const run = await runner.start({
    run: randomUUID(),
    place,
    options: {},
    cliSessionId: wanted.cliSessionId,
    ...(fork && { fork }),
    sharedEnv,
    rerun: false,
    mirror: true,
    lineLimitBytes: AGENT_LINE_LIMIT_BYTES,
  });
  const lines: JsonObject[] = [];
  const stored: Promise<void>[] = [];
  const gone = Promise.withResolvers<void>();
  let wake = Promise.withResolvers<void>();
  let isGone = false;
  let position = 0;
  let sent = 0;
  run.attach(0, {
    output(outputs) {
      for (const output of outputs) {
        if (output.kind !== "line") continue;
        lines.push(output.message);
        if (output.message["type"] === "transcript_mirror")
          stored.push(store.write(mirrorWrites(sessionId, output.bytes)));
        if (output.message["type"] === "control_request") allow(output.message);
      }
      wake.resolve();
      wake = Promise.withResolvers();
    },
    exited(_exit, number) {
      run.acknowledge(number);
      isGone = true;
      gone.resolve();
      wake.resolve();
    },
    written() {},
    away() {},
  });

  const write = (message: JsonObject): void => {
    sent += 1;
    run.write(sent, message);
  };
  function allow({ request_id, request }: JsonObject): void {
    const updatedInput = typeof request === "object" && request !== null && "input" in request ? request.input : {};
    const response = { subtype: "success", request_id, response: { behavior: "allow", updatedInput } };
    write({ type: "control_response", response });
  }
  const next: MirroredAgent["next"] = async (what, fits) => {
    for (;;) {
      for (; position < lines.length; position += 1) {
        const line = lines[position];
        if (line === undefined || !fits(line)) continue;
        position += 1;
        return line;
      }
      if (isGone) throw new Error(`the CLI was gone before ${what}: ${JSON.stringify(lines.at(-1)).slice(0, 500)}`);
      await wake.promise;
    }
  };
  return {
    lines,
    resumed: run.resumed,
    say: (text, uuid = randomUUID()) => write({ type: "user", uuid, message: { role: "user", content: text } }),
    next,
    result: () => next("a result", (line) => line["type"] === "result"),
    async hasRead() {
      const request_id = randomUUID();
      write({ type: "control_request", request_id, request: { subtype: "set_permission_mode", mode: "default" } });
      await next(
        "an answer",
        ({ type, response }) => type === "control_response" && JSON.stringify(response).includes(request_id),
      );
    },
    async end(how = "eof") {
      if (how === "eof") run.stop({ eofMs: 20_000, termMs: 1000 });
      else if (run.pid !== undefined) process.kill(-run.pid, "SIGKILL");
      await gone.promise;
      await Promise.all(stored);
    },
  };
}
