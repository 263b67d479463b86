import type { SqlJob } from "./port.ts";
import { runStatements } from "./run.ts";

// The program of one SQL process (host.ts starts it). Past its file size limit a write is to fail, not to end the process.
process.on("SIGXFSZ", () => undefined);
process.on("disconnect", () => process.exit(0));
process.on("message", (job: SqlJob) => process.send?.({ steps: runStatements(job) }));
process.send?.({ ready: true });
