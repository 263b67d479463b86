import type { FromProgram, ToProgram } from "./port.ts";
import { type RanStatements, runStatements } from "./run.ts";

// The program of one SQL process (host.ts starts it). Past its file size limit a write is to fail, not to end the process.
process.on("SIGXFSZ", () => undefined);
process.on("disconnect", () => process.exit(0));

const send = (message: FromProgram): void => void process.send?.(message);
let ran: RanStatements | undefined;
process.on("message", (message: ToProgram) => {
  if (message.kind === "run") {
    ran = runStatements(message.job);
    send({ kind: "ran" });
  } else {
    send({ kind: "finished", steps: ran?.finish() ?? [] });
    ran = undefined;
  }
});
send({ kind: "ready" });
