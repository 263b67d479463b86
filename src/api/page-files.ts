import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";

export interface PageFile {
  readonly bytes: Buffer;
  readonly type: string;
}

/** The files of the page at `/`, by name. */
export type PageFiles = ReadonlyMap<string, PageFile>;

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".ico": "image/x-icon",
  ".png": "image/png",
};

/** Reads the folders once; names of files are unique over them. Files of other types are not served. */
export function readPageFiles(folders: readonly string[]): PageFiles {
  const files = new Map<string, PageFile>();
  for (const folder of folders.filter((path) => existsSync(path))) {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const type = TYPES[extname(entry.name)];
      if (entry.isFile() && type !== undefined) {
        files.set(entry.name, { bytes: readFileSync(join(folder, entry.name)), type });
      }
    }
  }
  return files;
}
