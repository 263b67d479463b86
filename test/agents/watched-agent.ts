import type { Agent, AgentExit, AgentHandlers, AgentOutput, AgentSpec, Launcher } from "../../src/agents/port.ts";
import { processLauncher } from "../../src/agents/process.ts";
import type { JsonObject } from "../../src/protocol/json.ts";

/** An agent whose output is kept from the first byte, so that a test can wait for what has come already. */
export interface WatchedAgent extends AsyncDisposable {
  readonly agent: Agent;
  readonly outputs: readonly AgentOutput[];
  /** Everything that `exited` was called with. */
  readonly exits: readonly AgentExit[];
  /** The first output that passes, past or future. Rejects when the agent ends without one. */
  until(passes: (output: AgentOutput) => boolean): Promise<AgentOutput>;
  /** The text of a turn's result, which is awaited. */
  turn(text: string): Promise<string>;
  exited(): Promise<AgentExit>;
}

/** The message of a `line`, or an empty object. */
export function messageOf(output: AgentOutput): JsonObject {
  return output.kind === "line" ? output.message : {};
}

/** The bytes of a `line` or `noise` as text. */
export function textOf(output: AgentOutput): string {
  return output.kind === "dropped" ? "" : Buffer.from(output.bytes).toString("utf8");
}

export function watchAgent(
  spec: AgentSpec,
  handlers: Partial<AgentHandlers> = {},
  launcher: Launcher = processLauncher,
): WatchedAgent {
  const outputs: AgentOutput[] = [];
  const exits: AgentExit[] = [];
  let wake = Promise.withResolvers<void>();
  function changed(): void {
    wake.resolve();
    wake = Promise.withResolvers<void>();
  }

  const agent = launcher.start(spec, {
    output(lines) {
      outputs.push(...lines);
      changed();
      return handlers.output?.(lines);
    },
    exited(exit) {
      exits.push(exit);
      changed();
      handlers.exited?.(exit);
    },
  });

  async function until(passes: (output: AgentOutput) => boolean, from = 0): Promise<AgentOutput> {
    for (let seen = from; ; await wake.promise) {
      for (; seen < outputs.length; seen++) {
        const output = outputs[seen];
        if (output !== undefined && passes(output)) return output;
      }
      if (exits.length > 0) throw new Error(`the agent ended first: ${JSON.stringify(exits[0])}`);
    }
  }

  return {
    agent,
    outputs,
    exits,
    until: (passes) => until(passes),
    async turn(text) {
      const from = outputs.length;
      await agent.write({ type: "user", message: { role: "user", content: text } });
      return String(messageOf(await until((output) => messageOf(output)["type"] === "result", from))["result"]);
    },
    async exited() {
      while (exits[0] === undefined) await wake.promise;
      return exits[0];
    },
    async [Symbol.asyncDispose]() {
      await agent.stop({ eofMs: 0, termMs: 0 });
    },
  };
}
