import { parentPort, workerData } from "node:worker_threads";
import { applyGroup } from "./apply.ts";
import { openConnection, WRITER_PRAGMAS } from "./connection.ts";
import type { Call } from "./group-commit.ts";
import type { FromWriter, ToWriter } from "./writer.ts";

/** The writing thread: one connection, one transaction a message. A commit waits for the disk here and not in the event loop. */
function serve(path: string): void {
  if (parentPort === null) throw new Error("writer.worker runs as a worker thread only");
  const port = parentPort;
  const connection = openConnection(path);
  connection.exec(WRITER_PRAGMAS);
  const answer = (message: FromWriter, transfer: ArrayBuffer[] = []): void => port.postMessage(message, transfer);

  port.on("message", (message: ToWriter) => {
    switch (message.kind) {
      case "commit": {
        const { texts, calls: packed, blobs } = message;
        try {
          const calls = packed.map((call): Call => call.map(([text, params]) => ({ sql: texts[text] ?? "", params })));
          answer({ kind: "done", failures: applyGroup(connection, calls), blobs }, [blobs]);
        } catch (error) {
          answer({ kind: "failed", message: error instanceof Error ? error.message : String(error), blobs }, [blobs]);
        }
        return;
      }
      case "close":
        connection.close();
        port.close();
        return;
    }
  });
  answer({ kind: "ready" });
}

serve(String(workerData));
