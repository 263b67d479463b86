import { chmod, lstat, mkdir, readdir, realpath, rm } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { isInside, refusedCwd, relativeSegments, SESSIONS_FOLDER } from "./relative-path.ts";

export interface FolderPlace {
  readonly workspaceRoot: string;
  readonly dataDir: string;
  readonly tenant: string;
  readonly sessionId: string;
}

export interface SessionFolders {
  /** Where the agent works: an absolute path without symbolic links. */
  readonly cwd: string;
  /** HOME, the session's alone, mode 0700. */
  readonly home: string;
  /** CLAUDE_CONFIG_DIR, inside home. */
  readonly configDir: string;
  /** `cwd` as clients see it: relative to the tenant's folder, `.` for that folder itself. */
  readonly relativeCwd: string;
}

/**
 * Makes a session's folders, or finds them. Without `cwd` the session works in a folder of its own, `sessions/<id>`; a given one
 * is relative to the tenant's folder and is made when it is missing, after everything that exists of it was checked.
 * @throws BrokerError cwd_refused
 */
export async function sessionFolders(
  place: FolderPlace & { readonly cwd?: string | undefined },
): Promise<SessionFolders> {
  const tenantFolder = await makeTenantFolder(place);
  const own = [SESSIONS_FOLDER, segment(place.sessionId)];
  const cwd =
    place.cwd === undefined
      ? await enter(tenantFolder, own, () => true)
      : await enter(tenantFolder, relativeSegments(place.cwd), (real) => !isOthers(tenantFolder, real));
  if (place.cwd === undefined && cwd !== join(tenantFolder, ...own)) throw refusedCwd("leads through a link");
  const home = join(place.dataDir, "homes", segment(place.sessionId));
  const configDir = join(home, ".claude");
  await mkdir(configDir, { recursive: true, mode: 0o700 });
  const realHome = await realpath(home);
  return { cwd, home: realHome, configDir: join(realHome, ".claude"), relativeCwd: relative(tenantFolder, cwd) || "." };
}

/** Removes a session's own folder and its home, for a purge. A given cwd is never touched. Missing folders are no error. */
export async function removeFolders(place: FolderPlace): Promise<void> {
  const id = segment(place.sessionId);
  const sessions = join(place.workspaceRoot, segment(place.tenant), SESSIONS_FOLDER);
  // If an agent has put a link in the way, what lies behind it is not ours to remove.
  if (await isRealFolder(sessions, place.workspaceRoot)) await removeTree(join(sessions, id));
  await removeTree(join(place.dataDir, "homes", id));
}

/** Whether the CLI has stored a conversation under this id, and so wants `--resume` for it and refuses `--session-id`. */
export async function transcriptExists(configDir: string, cliSessionId: string): Promise<boolean> {
  const projects = join(configDir, "projects");
  const folders = await readdir(projects).catch(() => []);
  const file = `${segment(cliSessionId)}.jsonl`;
  const found = await Promise.all(folders.map((folder) => lstat(join(projects, folder, file)).catch(() => undefined)));
  return found.some((entry) => entry?.isFile() === true);
}

/** `<root>/<tenant>`, real. A link in its place would make another folder the tenant's. */
async function makeTenantFolder({ workspaceRoot, tenant }: FolderPlace): Promise<string> {
  await mkdir(join(workspaceRoot, segment(tenant)), { recursive: true, mode: 0o700 });
  const expected = join(await realpath(workspaceRoot), tenant);
  if ((await realpath(join(workspaceRoot, tenant))) !== expected) throw refusedCwd("the tenant's folder is a link");
  return expected;
}

/** Goes down from a real folder, one segment at a time, and stays inside; makes what is missing. Returns the real path. */
async function enter(from: string, segments: readonly string[], isAllowed: (real: string) => boolean): Promise<string> {
  let current = from;
  for (const name of segments) {
    const next = join(current, name);
    const entry = await lstat(next).catch(() => undefined);
    if (entry === undefined) await mkdir(next, { mode: 0o700 }).catch(ifExists);
    current = await realpath(next).catch(() => {
      throw refusedCwd("leads through a broken link");
    });
    if (!isInside(from, current)) throw refusedCwd("leads out of the tenant's folder");
    if (!isAllowed(current)) throw refusedCwd("lies in another session's folder");
    if (!(await lstat(current)).isDirectory()) throw refusedCwd("is not a folder");
  }
  return current;
}

/** A symbolic link may lead into the sessions' folders as well as a name. */
function isOthers(tenantFolder: string, real: string): boolean {
  return relative(tenantFolder, real).split(sep)[0]?.toLowerCase() === SESSIONS_FOLDER;
}

/** Two sessions may make the same folder at once. */
function ifExists(error: unknown): void {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EEXIST") return;
  throw refusedCwd(`cannot be made (${String(code)})`);
}

async function isRealFolder(folder: string, root: string): Promise<boolean> {
  const [real, realRoot] = await Promise.all([realpath(folder).catch(() => undefined), realpath(root).catch(() => "")]);
  return real === join(realRoot, relative(root, folder));
}

async function removeTree(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true });
  } catch {
    // Package caches hold read-only folders, whose entries only a privileged user could remove.
    await makeWritable(folder);
    await rm(folder, { recursive: true, force: true });
  }
}

async function makeWritable(folder: string): Promise<void> {
  const entry = await lstat(folder).catch(() => undefined);
  if (entry?.isDirectory() !== true) return;
  await chmod(folder, 0o700);
  for (const name of await readdir(folder)) await makeWritable(join(folder, name));
}

/** Ids and tenant names are the broker's own; one that is not a plain name must never become a path. */
function segment(name: string): string {
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]*$/.test(name)) throw new RangeError("not a plain name for a folder");
  return name;
}
