import { constants } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";

/** The file of one run's output that did not fit in memory. Made when it is first needed. */
export interface Spool {
  /** Whether that many more bytes may be written. */
  hasRoom(bytes: number): boolean;
  /** Resolves with the place of the bytes in the file. Rejects when the disk does not take them. */
  append(bytes: Buffer): Promise<number>;
  read(at: number, length: number): Promise<Buffer>;
  /** Nothing of what was appended before this call is needed any more. Not to be called while an append is under way. */
  clear(): void;
  /** Removes the file. */
  close(): Promise<void>;
}

export function createSpool(path: string, limitBytes: number): Spool {
  let opening: Promise<FileHandle> | undefined;
  /** Where the next bytes go: told at once, so that what is asked for later finds its place. */
  let end = 0;
  let isClosed = false;
  let earlier: Promise<unknown> = Promise.resolve();

  function file(): Promise<FileHandle> {
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    opening ??= open(path, flags, 0o600);
    return opening;
  }

  /** One operation at a time, in the order of the calls: a file that is being cut short is not written to. */
  function inOrder<T>(operation: (handle: FileHandle) => Promise<T>): Promise<T> {
    const done = earlier.then(async () => operation(await file()));
    earlier = done.catch(() => undefined);
    return done;
  }

  return {
    hasRoom: (bytes) => !isClosed && end + bytes <= limitBytes,
    async append(bytes) {
      const at = end;
      end += bytes.length;
      try {
        await inOrder((handle) => writeAll(handle, bytes, at));
        return at;
      } catch (error) {
        // What did not go in takes no room, unless something has its place behind it already.
        if (end === at + bytes.length) end = at;
        throw error;
      }
    },
    read: (at, length) => inOrder((handle) => readAll(handle, at, length)),
    clear() {
      if (end === 0) return;
      end = 0;
      // Where it fails, what comes next is written over it all the same.
      inOrder((handle) => handle.truncate(0)).catch(() => {});
    },
    async close() {
      isClosed = true;
      await earlier;
      const handle = await opening?.catch(() => undefined);
      await handle?.close();
      if (opening !== undefined) await rm(path, { force: true });
    },
  };
}

async function writeAll(handle: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, written, bytes.length - written, at + written);
    written += bytesWritten;
  }
}

async function readAll(handle: FileHandle, at: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafeSlow(length);
  const { bytesRead } = await handle.read(bytes, 0, length, at);
  if (bytesRead !== length) throw new Error("the spool file is shorter than what was written to it");
  return bytes;
}
