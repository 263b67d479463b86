import { posix } from "node:path";
import type { PolicyQuestion } from "../../protocol/policy.ts";
import { type Certainty, fold } from "./certainty.ts";
import { matchesPath, type Segment } from "./glob.ts";

/** Where the CLI's own tools name their path. */
const FILE_TOOLS: Readonly<Record<string, string>> = {
  Read: "file_path",
  Write: "file_path",
  Edit: "file_path",
  MultiEdit: "file_path",
  NotebookRead: "notebook_path",
  NotebookEdit: "notebook_path",
};
/** These look at everything below their path, which is the session's folder when it is absent. */
const SEARCH_TOOLS: readonly string[] = ["Grep", "Glob", "LS"];
/** Fields of other tools that may be paths. */
const PATH_FIELD = /path|file|dir|folder|uri|root|cwd/i;
/** Links of the kernel: they lead to other places than their names say. */
const MAGIC = /^\/(?:proc|dev)(?:\/|$)/;
/** Names that stand for any name; no literal name of a pattern is like them. */
const ANY_NAME = "\u0001";

/** The paths that a tool call reaches. */
export interface ToolPaths {
  /** An allow may rely on them: the tool is known, and these are all. */
  readonly known: boolean;
  /** Absolute, `.` and `..` resolved by their letters, links not followed. */
  readonly paths: readonly string[];
  /** Everything below the paths is reached too. */
  readonly below: boolean;
  /** There is a path that does not say where it leads (`~`, /proc, control characters, not a string). */
  readonly unclear: boolean;
}

export function toolPaths({ tool_name, input, cwd }: PolicyQuestion): ToolPaths {
  const field = Object.hasOwn(FILE_TOOLS, tool_name) ? FILE_TOOLS[tool_name] : undefined;
  if (field !== undefined) return resolved([input[field]], cwd, { known: true, below: false });
  if (SEARCH_TOOLS.includes(tool_name)) {
    const found = resolved([input["path"] ?? "."], cwd, { known: true, below: true });
    return tool_name === "Glob" && leavesFolder(input["pattern"]) ? { ...found, unclear: true } : found;
  }
  const named = Object.entries(input).filter(([name]) => PATH_FIELD.test(name));
  const values = named.flatMap(([, value]) => (Array.isArray(value) ? value : [value]));
  const texts = values.filter((value) => typeof value === "string");
  return resolved(texts, cwd, { known: false, below: true });
}

/** The pattern of Glob is a path too. */
const leavesFolder = (pattern: unknown): boolean =>
  typeof pattern !== "string" ||
  pattern.includes("..") ||
  /^\s*[/~]|[\\\p{Cc}]/u.test(pattern) ||
  /[{,]\s*[/~]/.test(pattern);

function resolved(
  values: readonly unknown[],
  cwd: string,
  kind: { readonly known: boolean; readonly below: boolean },
): ToolPaths {
  const texts = values.filter((value) => typeof value === "string");
  const paths = texts.map((text) => posix.resolve(cwd, text));
  const unclear = texts.length < values.length || texts.some(isUnclear) || paths.some((path) => MAGIC.test(path));
  return { ...kind, paths, unclear };
}

const isUnclear = (text: string): boolean =>
  text === "" || text.trim() !== text || /^~|[\\\p{Cc}]/u.test(text) || /^[a-z][a-z0-9+.-]*:/i.test(text);

const namesOf = (path: string): string[] => path.split("/").filter((name) => name !== "");

function segmentsOf(glob: string, cwd: string): readonly Segment[] {
  const own = namesOf(glob).map((part): Segment => (part === "**" ? part : { glob: part }));
  return glob.startsWith("/") ? own : [...namesOf(cwd).map((literal) => ({ literal })), ...own];
}

/**
 * Whether the paths of a tool call match globs. `must`: each path, and everything below it where the tool goes there, is inside one glob.
 * `may`: one of the paths, or something below it, could be.
 */
export function matchesPaths(
  globs: readonly string[],
  { known, paths, below, unclear }: ToolPaths,
  cwd: string,
  certainty: Certainty,
): boolean {
  if (certainty === "must") {
    if (!known || unclear || paths.length === 0) return false;
    const patterns = globs.map((glob) => segmentsOf(glob, cwd));
    const reached = (path: string): readonly (readonly string[])[] => {
      const names = namesOf(path);
      return below ? [names, [...names, ANY_NAME], [...names, ANY_NAME, ANY_NAME]] : [names];
    };
    return paths.every((path) =>
      patterns.some((pattern) => reached(path).every((names) => matchesPath(pattern, names, "whole"))),
    );
  }
  if (unclear) return true;
  const wanted = globs.map(fold).flatMap((glob) => {
    const segments = segmentsOf(glob, fold(cwd));
    // `**/.env` is meant wherever it is.
    return glob.startsWith("**/") ? [segments, segmentsOf(`/${glob}`, "/")] : [segments];
  });
  return paths.some((path) =>
    wanted.some((pattern) => matchesPath(pattern, namesOf(fold(path)), below ? "inside" : "whole")),
  );
}
