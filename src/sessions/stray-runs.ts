import type { Runner } from "../agents/runner-port.ts";

/** Stops the runs of a runner that no session has. Resolves when they are gone, or their runner is away. */
export async function dropStrays(
  runner: Pick<Runner, "runs" | "join">,
  known: ReadonlySet<string | undefined>,
): Promise<void> {
  const strays = runner.runs().filter((run) => !known.has(run));
  await Promise.all(strays.map((run) => dropRun(runner, run)));
}

/** An agent of no session: of one that was purged, or one whose last words are in the log already. */
async function dropRun(runner: Pick<Runner, "join">, id: string): Promise<void> {
  const run = await runner.join(id);
  if (run === undefined) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  // The newest may be its exit, which is what is waited for.
  run.attach(Math.max(0, run.last - 1), {
    output() {},
    exited(_exit, number) {
      run.acknowledge(number);
      resolve();
    },
    written() {},
    away: () => resolve(),
  });
  run.stop({ eofMs: 0, termMs: 1000 });
  await promise;
}
