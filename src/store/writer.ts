import { Worker } from "node:worker_threads";
import type { Call, Commit } from "./group-commit.ts";
import type { SqlValue } from "./port.ts";

/** A statement on its way to the thread: which text, and its parameters. */
type PackedWrite = readonly [text: number, params: readonly SqlValue[]];

export type ToWriter =
  | {
      readonly kind: "commit";
      readonly texts: readonly string[];
      /** Their blobs are views of `blobs`. */
      readonly calls: readonly (readonly PackedWrite[])[];
      readonly blobs: ArrayBuffer;
    }
  | { readonly kind: "close" };

export type FromWriter =
  | { readonly kind: "ready" }
  /** The buffer comes back to be filled again. */
  | { readonly kind: "done"; readonly failures: ReadonlyMap<number, string>; readonly blobs: ArrayBuffer }
  | { readonly kind: "failed"; readonly message: string; readonly blobs: ArrayBuffer };

/** The buffer for blobs is at least so big, and is kept for the next commit unless one huge event made it bigger than the other. */
const MIN_BLOB_BYTES = 256 * 1024;
const MAX_KEPT_BLOB_BYTES = 8 * 1024 * 1024;

/** The writing thread as the main thread sees it. One commit at a time. */
export interface Writer {
  readonly commit: Commit;
  /** The thread closes its connection and ends. */
  close(): Promise<void>;
}

/** Starts the thread on an existing, migrated database. @throws Error when it cannot open it */
export async function startWriter(path: string): Promise<Writer> {
  // From source it is a .ts file, from dist a .js one.
  const fromSource = import.meta.url.endsWith(".ts");
  const file = fromSource
    ? new URL("./writer.worker.ts", import.meta.url)
    : new URL("./writer.worker.js", import.meta.url);
  const worker = new Worker(file, { workerData: path, name: "patchbay-store" });
  const ready = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  let answer: PromiseWithResolvers<ReadonlyMap<number, string>> | undefined;
  let dead: Error | undefined;
  let spare = new ArrayBuffer(0);

  const settle = (): typeof answer => {
    const current = answer;
    answer = undefined;
    worker.unref();
    return current;
  };
  const die = (reason: Error): void => {
    dead ??= reason;
    ready.reject(dead);
    settle()?.reject(dead);
  };
  worker.on("message", (message: FromWriter) => {
    if (message.kind === "ready") return ready.resolve();
    // Let go of at once, not when the collector comes round: a flood of big events would pile them up.
    spare = message.blobs.byteLength > MAX_KEPT_BLOB_BYTES ? message.blobs.transfer(0) : message.blobs;
    if (message.kind === "done") settle()?.resolve(message.failures);
    else settle()?.reject(new Error(message.message));
  });
  worker.on("error", die);
  worker.on("messageerror", die);
  worker.on("exit", (code) => {
    die(new Error(`the store's thread ended with code ${code}`));
    ended.resolve();
  });

  await ready.promise;
  // An idle store does not keep the process alive; a commit does.
  worker.unref();
  return {
    commit(calls) {
      if (dead !== undefined) return Promise.reject(dead);
      answer = Promise.withResolvers();
      worker.ref();
      const message = pack(calls, spare);
      worker.postMessage(message, [message.blobs]);
      return answer.promise;
    },
    async close() {
      worker.ref();
      worker.postMessage({ kind: "close" } satisfies ToWriter);
      await ended.promise;
    },
  };
}

/**
 * Copies all blobs into one buffer that is handed over: cloning each would copy the whole memory block that it is a view of,
 * and the originals stay in use here.
 */
function pack(calls: readonly Call[], spare: ArrayBuffer): Extract<ToWriter, { kind: "commit" }> {
  const texts = new Map<string, number>();
  const needed = blobBytes(calls);
  const blobs = needed <= spare.byteLength ? spare : new ArrayBuffer(Math.max(needed, MIN_BLOB_BYTES));
  let used = 0;
  const packValue = (value: SqlValue): SqlValue => {
    if (typeof value !== "object" || value === null) return value;
    const copy = new Uint8Array(blobs, used, value.byteLength);
    copy.set(value);
    used += value.byteLength;
    return copy;
  };
  const packed = calls.map((call) =>
    call.map(({ sql, params }): PackedWrite => {
      let text = texts.get(sql);
      if (text === undefined) {
        text = texts.size;
        texts.set(sql, text);
      }
      return [text, params.map(packValue)];
    }),
  );
  return { kind: "commit", texts: [...texts.keys()], calls: packed, blobs };
}

function blobBytes(calls: readonly Call[]): number {
  let bytes = 0;
  for (const call of calls) {
    for (const { params } of call) {
      for (const value of params) if (typeof value === "object" && value !== null) bytes += value.byteLength;
    }
  }
  return bytes;
}
