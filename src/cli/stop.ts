/** Longest time that an orderly stop may take. */
const STOP_LIMIT_MS = 9_000;

/**
 * Resolves at the first SIGTERM or SIGINT. What has not ended by itself in 9 seconds after that, or at a second signal, is ended.
 */
export function untilStopped(): Promise<void> {
  return new Promise((resolve) => {
    let stopping = false;
    function stop(signal: NodeJS.Signals): void {
      if (stopping) process.exit(signal === "SIGINT" ? 130 : 143);
      stopping = true;
      setTimeout(() => {
        console.error("patchbay: did not stop in time; ended. Sessions are taken up at the next start.");
        process.exit(1);
      }, STOP_LIMIT_MS).unref();
      resolve();
    }
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
  });
}
