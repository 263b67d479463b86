/** Ours: the real server with everything on (authentication, durable log, previews, session logic), reached through its public ports only. */
import { createBroker } from "../src/broker.ts";
import { answerBench } from "./measured.ts";

const { BENCH_DATA_DIR: dataDir, BENCH_AGENT: claudeBin, BENCH_KEY: adminKey, BENCH_CORPUS, BENCH_WRITE } = process.env;
if (dataDir === undefined || claudeBin === undefined || adminKey === undefined) {
  throw new Error("ours.ts is started by the bench, which tells it where to work.");
}

const broker = await createBroker({
  runner: "inline",
  host: "127.0.0.1",
  port: 0,
  dataDir,
  claudeBin,
  adminKey,
  agentEnv: { BENCH_CORPUS: BENCH_CORPUS ?? "", BENCH_WRITE: BENCH_WRITE ?? "line" },
  logLevel: "error",
});
process.send?.({ ready: true, port: broker.port });

answerBench({
  async close() {
    await broker.close();
    process.disconnect();
  },
});
