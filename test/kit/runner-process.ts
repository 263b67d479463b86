import { waitUntil } from "../../src/agents/process-group.ts";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import { readRunnerInfo, runnerFolder } from "../../src/agents/runner/runner-folder.ts";

/** The pid of a data directory's runner; undefined when none runs. */
export function runnerPid(dataDir: string): number | undefined {
  const info = readRunnerInfo(runnerFolder(dataDir));
  return info !== undefined && isRunning(info.pid) ? info.pid : undefined;
}

function isRunning(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && isAlive(entry);
}

/** Ends a data directory's runner, with its agents, and waits until it is gone. Does nothing where none runs. */
export async function stopRunner(dataDir: string): Promise<void> {
  for (let pid = runnerPid(dataDir); pid !== undefined; pid = runnerPid(dataDir)) {
    const stopped = pid;
    process.kill(stopped, "SIGTERM");
    await waitUntil(() => !isRunning(stopped));
    if (isRunning(stopped)) process.kill(stopped, "SIGKILL");
  }
}
