import { constants } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";

/** The file of one run's output that did not fit in memory. Made when it is first needed. */
export interface Spool {
  /** Whether that many more bytes may be written. */
  hasRoom(bytes: number): boolean;
  /** Resolves with the place of the bytes in the file. Rejects when the disk does not take them. */
  append(bytes: Buffer): Promise<number>;
  read(at: number, length: number): Promise<Buffer>;
  /** Nothing in it is needed any more. */
  clear(): void;
  /** Removes the file. */
  close(): Promise<void>;
}

export function createSpool(path: string, limitBytes: number): Spool {
  let opening: Promise<FileHandle> | undefined;
  let end = 0;
  let isClosed = false;
  let clearing: Promise<unknown> = Promise.resolve();

  function file(): Promise<FileHandle> {
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    opening ??= open(path, flags, 0o600);
    return opening;
  }

  return {
    hasRoom: (bytes) => !isClosed && end + bytes <= limitBytes,
    async append(bytes) {
      const handle = await file();
      await clearing;
      const at = end;
      for (let written = 0; written < bytes.length; ) {
        const { bytesWritten } = await handle.write(bytes, written, bytes.length - written, at + written);
        written += bytesWritten;
      }
      end = at + bytes.length;
      return at;
    },
    async read(at, length) {
      const bytes = Buffer.allocUnsafeSlow(length);
      const { bytesRead } = await (await file()).read(bytes, 0, length, at);
      if (bytesRead !== length) throw new Error("the spool file is shorter than what was written to it");
      return bytes;
    },
    clear() {
      if (end === 0) return;
      end = 0;
      clearing = file()
        .then((handle) => handle.truncate(0))
        // What comes next is written over it all the same.
        .catch(() => undefined);
    },
    async close() {
      isClosed = true;
      await clearing;
      const handle = await opening?.catch(() => undefined);
      await handle?.close();
      if (opening !== undefined) await rm(path, { force: true });
    },
  };
}
