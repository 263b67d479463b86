import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { isJsonObject, type JsonObject } from "../src/protocol/json.ts";

/** A process of the bench: a server under test, or viewers. */
export interface Program {
  readonly pid: number;
  /** What it said when it was ready. */
  readonly ready: JsonObject;
  /** Asks it something. @throws Error when it answers with one, exits, or is silent for too long */
  ask(ask: string, fields?: JsonObject): Promise<JsonObject>;
  /** Asks it to close, and resolves when it is gone. */
  close(): Promise<void>;
}

const PATIENCE_MS = 120_000;
const CLOSE_PATIENCE_MS = 10_000;

/** Starts a program of this folder and waits until it is ready. @throws Error when it is not */
export async function startProgram(file: string, env: Readonly<Record<string, string>>): Promise<Program> {
  const child = fork(join(import.meta.dirname, file), [], { env: { ...process.env, ...env } });
  const waiting = new Map<unknown, PromiseWithResolvers<JsonObject>>();
  const exited = once(child, "exit");
  const wait = (id: unknown): Promise<JsonObject> => {
    const answer = Promise.withResolvers<JsonObject>();
    waiting.set(id, answer);
    const giveUp = (why: string): void => answer.reject(new Error(`${file} ${why}`));
    const timer = setTimeout(() => giveUp(`gave no answer in ${PATIENCE_MS} ms`), PATIENCE_MS);
    exited.then(([code]) => giveUp(`ended with ${code}`), giveUp);
    return answer.promise.finally(() => clearTimeout(timer));
  };
  child.on("message", (message: unknown) => {
    if (!isJsonObject(message)) return;
    const answer = waiting.get(message["id"]);
    waiting.delete(message["id"]);
    if (message["error"] === undefined) answer?.resolve(message);
    else answer?.reject(new Error(`${file}: ${message["error"]}`));
  });
  const ready = await wait(undefined);
  let asked = 0;
  const ask: Program["ask"] = (what, fields = {}) => {
    asked += 1;
    const answer = wait(asked);
    child.send({ ...fields, id: asked, ask: what });
    return answer;
  };
  return {
    pid: child.pid ?? 0,
    ready,
    ask,
    async close() {
      ask("close").catch(() => undefined);
      const timer = setTimeout(() => child.kill("SIGKILL"), CLOSE_PATIENCE_MS);
      await exited;
      clearTimeout(timer);
    },
  };
}
