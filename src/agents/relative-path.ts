import { isAbsolute, relative, sep } from "node:path";
import { BrokerError } from "../protocol/problems.ts";

/** The part of a tenant's folder that holds the sessions' own folders. */
export const SESSIONS_FOLDER = "sessions";

/** The names of a client's relative path. Nothing is resolved: what could mean another place in any reading is refused. @throws BrokerError cwd_refused */
export function relativeSegments(path: string): string[] {
  if (path.includes("\0")) throw refusedCwd("holds a NUL character");
  if (isAbsolute(path) || /^[A-Za-z]:/.test(path) || path.startsWith("~")) throw refusedCwd("is absolute");
  if (path.includes("\\")) throw refusedCwd("holds a backslash");
  if (/%(2e|2f|5c|00)/i.test(path)) throw refusedCwd("holds an escaped dot or slash");
  const segments = path.split("/").filter((name) => name !== "" && name !== ".");
  if (segments.includes("..")) throw refusedCwd("holds `..`");
  if (segments.some((name) => Buffer.byteLength(name) > 255)) throw refusedCwd("holds a name over 255 bytes");
  if (segments[0]?.toLowerCase() === SESSIONS_FOLDER) throw refusedCwd("lies in another session's folder");
  return segments;
}

/** Whether a real path is that folder or lies in it. A sibling whose name begins alike does not. */
export function isInside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

export function refusedCwd(why: string): BrokerError {
  return new BrokerError("cwd_refused", `cwd ${why}. Name a folder by its path relative to your tenant's folder.`, {
    details: { field: "cwd" },
  });
}
