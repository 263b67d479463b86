import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readdir, realpath, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { BrokerError } from "../protocol/problems.ts";
import { removeFolders, sessionFolders, transcriptExists } from "./folders.ts";
import type { RunnerFiles, SessionPlace, Transcript } from "./runner-port.ts";

/** All files of one transcript together. */
const TRANSCRIPT_LIMIT_BYTES = 512 * 1024 * 1024;
const FILES_LIMIT = 10_000;
const DEPTH_LIMIT = 8;
/** The CLI cuts the name of a project's folder here, and adds a hash of the whole path (both versions). */
const SLUG_LIMIT = 200;

/**
 * Sessions' transcripts in this machine's folders. An agent may write to all of them: links that it left are not followed, and what is no
 * plain file is not read.
 */
export function createTranscriptFiles(settings: { dataDir: string; workspaceRoot: string }): RunnerFiles {
  const { dataDir, workspaceRoot } = settings;

  async function configOf({ sessionId }: SessionPlace): Promise<string | undefined> {
    const homes = await realpath(join(dataDir, "homes")).catch(() => undefined);
    return homes === undefined ? undefined : join(homes, plainName(sessionId), ".claude");
  }

  return {
    async readTranscript(place, cliSessionId) {
      const config = await configOf(place);
      return config === undefined ? undefined : readTranscript(config, plainName(cliSessionId));
    },
    async hasTranscript(place, cliSessionId) {
      const config = await configOf(place);
      return config !== undefined && transcriptExists(config, cliSessionId);
    },
    async writeTranscript(place, cliSessionId, transcript) {
      const id = plainName(cliSessionId);
      const files = [...transcript].map(([path, bytes]) => ({ segments: pathSegments(id, path), bytes }));
      const { cwd, home, configDir } = await sessionFolders({ dataDir, workspaceRoot, ...place });
      await removeTranscript(configDir, id);
      const project = await makeFolders(home, [".claude", "projects", projectSlug(cwd)]);
      // The main file last: with it the conversation exists.
      files.sort((one, other) => other.segments.length - one.segments.length);
      for (const { segments, bytes } of files) await writeNew(project, segments, bytes);
    },
    remove: (place) => removeFolders({ dataDir, workspaceRoot, ...place }),
  };
}

/** The name of the folder in `projects` that the CLI makes for a working folder (an absolute, real path). */
function projectSlug(cwd: string): string {
  const name = cwd.replace(/[^a-zA-Z0-9]/g, "-");
  if (name.length <= SLUG_LIMIT) return name;
  let hash = 0;
  for (let index = 0; index < cwd.length; index++) hash = (Math.imul(hash, 31) + cwd.charCodeAt(index)) | 0;
  return `${name.slice(0, SLUG_LIMIT)}-${Math.abs(hash).toString(36)}`;
}

async function readTranscript(config: string, id: string): Promise<Transcript | undefined> {
  for (const project of await projectsOf(config)) {
    const main = await readPlain(join(project, `${id}.jsonl`), TRANSCRIPT_LIMIT_BYTES);
    if (main === undefined) continue;
    const files = new Map<string, Uint8Array>([[`${id}.jsonl`, main]]);
    let leftBytes = TRANSCRIPT_LIMIT_BYTES - main.length;
    for (const path of await filesBelow(project, id, 0)) {
      const bytes = await readPlain(join(project, path), leftBytes);
      if (bytes === undefined) continue;
      leftBytes -= bytes.length;
      files.set(path, bytes);
    }
    return files;
  }
  return undefined;
}

/** Real folders in `projects`, with their paths. */
async function projectsOf(config: string): Promise<string[]> {
  const projects = join(config, "projects");
  if (!(await isRealFolder(config)) || !(await isRealFolder(projects))) return [];
  const entries = await readdir(projects, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map((entry) => join(projects, entry.name));
}

/** Plain files below, by path relative to the project's folder. */
async function filesBelow(project: string, folder: string, depth: number): Promise<string[]> {
  if (depth > DEPTH_LIMIT || !(await isRealFolder(join(project, folder)))) return [];
  const found: string[] = [];
  for (const entry of await readdir(join(project, folder), { withFileTypes: true })) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) found.push(...(await filesBelow(project, path, depth + 1)));
    else if (entry.isFile()) found.push(path);
    if (found.length > FILES_LIMIT) throw tooLarge(`over ${FILES_LIMIT} files`);
  }
  return found;
}

/** undefined when it is missing or no plain file. @throws BrokerError too_large */
async function readPlain(path: string, limitBytes: number): Promise<Uint8Array | undefined> {
  // Without O_NONBLOCK a named pipe would hold up the open.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch(() => undefined);
  if (file === undefined) return undefined;
  try {
    const entry = await file.stat();
    if (!entry.isFile() || !(await isAt(file, path))) return undefined;
    if (entry.size > limitBytes) throw tooLarge(`over ${TRANSCRIPT_LIMIT_BYTES} bytes`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

/** A folder on the way may have become a link after it was looked at; the kernel knows which file it opened. */
async function isAt(file: FileHandle, path: string): Promise<boolean> {
  if (process.platform !== "linux") return (await realpath(path).catch(() => "")) === path;
  return (await realpath(`/proc/self/fd/${file.fd}`).catch(() => "")) === path;
}

async function isRealFolder(path: string): Promise<boolean> {
  const entry = await lstat(path).catch(() => undefined);
  return entry?.isDirectory() === true;
}

async function removeTranscript(config: string, id: string): Promise<void> {
  for (const project of await projectsOf(config)) {
    await rm(join(project, `${id}.jsonl`), { recursive: true, force: true });
    await rm(join(project, id), { recursive: true, force: true });
  }
}

/** Goes down from a real folder; what stands in the way and is no folder of its own is removed. Returns the path. */
async function makeFolders(from: string, names: readonly string[]): Promise<string> {
  let path = from;
  for (const name of names) {
    path = join(path, name);
    if (await isRealFolder(path)) continue;
    await rm(path, { force: true });
    await mkdir(path, { mode: 0o700 });
  }
  return path;
}

async function writeNew(project: string, segments: readonly string[], bytes: Uint8Array): Promise<void> {
  const path = join(project, ...segments);
  await makeFolders(project, segments.slice(0, -1));
  const draft = join(dirname(path), ".patchbay-draft");
  await rm(draft, { recursive: true, force: true });
  await writeFile(draft, bytes, { mode: 0o600, flag: "wx" });
  await rename(draft, path);
}

/** The main file, or one in the folder of the same name. Nothing else may be written from a transcript. @throws BrokerError bad_request */
function pathSegments(id: string, path: string): string[] {
  const segments = path.split("/");
  const isMain = path === `${id}.jsonl`;
  const isBelow = segments.length > 1 && segments[0] === id;
  const arePlain = segments.every((name) => /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,250}$/.test(name));
  if ((isMain || isBelow) && arePlain && segments.length <= DEPTH_LIMIT) return segments;
  throw new BrokerError("bad_request", `A transcript holds no file ${path.slice(0, 80)}.`, {
    details: { field: "transcript" },
  });
}

function plainName(name: string): string {
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]*$/.test(name)) throw new RangeError("not a plain name for a file");
  return name;
}

function tooLarge(why: string): BrokerError {
  return new BrokerError("too_large", `The session's transcript is ${why}.`);
}
