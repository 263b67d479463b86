import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { AgentExit, AgentOutput } from "../../src/agents/port.ts";
import type { Run, RunHandlers, StartRequest } from "../../src/agents/runner-port.ts";
import { AGENT_LINE_LIMIT_BYTES } from "../../src/protocol/limits.ts";

/** A run whose output is kept, with the number of each line. */
export interface WatchedRun {
  readonly run: Run;
  readonly outputs: readonly AgentOutput[];
  /** `upTo` of each delivery. */
  readonly numbers: readonly number[];
  readonly written: readonly number[];
  readonly away: readonly boolean[];
  readonly exits: readonly { readonly exit: AgentExit; readonly number: number }[];
  /** Resolves when it is so; checked after each thing that happens. */
  until(isSo: () => boolean): Promise<void>;
  exited(): Promise<AgentExit>;
  /** Outputs as text. */
  texts(): string[];
}

/** Attaches to a run. `taken` may hold a delivery up. */
export function watchRun(run: Run, after = 0, taken: RunHandlers["output"] = () => undefined): WatchedRun {
  const outputs: AgentOutput[] = [];
  const numbers: number[] = [];
  const written: number[] = [];
  const away: boolean[] = [];
  const exits: { exit: AgentExit; number: number }[] = [];
  let wake = Promise.withResolvers<void>();
  function changed(): void {
    wake.resolve();
    wake = Promise.withResolvers();
  }
  run.attach(after, {
    output(lines, upTo) {
      outputs.push(...lines);
      numbers.push(upTo);
      changed();
      return taken(lines, upTo);
    },
    exited(exit, number) {
      exits.push({ exit, number });
      changed();
    },
    written(id) {
      written.push(id);
      changed();
    },
    away(isAway) {
      away.push(isAway);
      changed();
    },
  });
  async function until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await wake.promise;
  }
  return {
    run,
    outputs,
    numbers,
    written,
    away,
    exits,
    until,
    async exited() {
      await until(() => exits.length > 0);
      const [first] = exits;
      if (first === undefined) throw new Error("no exit");
      return first.exit;
    },
    texts: () => outputs.map((output) => (output.kind === "dropped" ? "" : Buffer.from(output.bytes).toString("utf8"))),
  };
}

let runCount = 0;

/** Asks for an agent that is this program, in a folder of its own. */
export function requestFor(command: string, more: Partial<StartRequest> = {}): StartRequest {
  runCount += 1;
  return {
    run: `run-${process.pid}-${runCount}`,
    place: { tenant: "acme", sessionId: `s${runCount}` },
    options: {},
    cliSessionId: "0b8f3c5e-8a3f-4b43-9a4e-0d6f3a6a2b11",
    sharedEnv: {},
    rerun: false,
    mirror: false,
    command,
    lineLimitBytes: AGENT_LINE_LIMIT_BYTES,
    ...more,
  };
}

/** An executable of these shell lines; it is given the CLI's arguments and may ignore them. */
export function shellProgram(folder: string, script: string): string {
  const path = join(mkdtempSync(join(folder, "program-")), "agent");
  writeFileSync(path, `#!/bin/bash\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}
