import { randomBytes } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { isJsonObject, stringField } from "../../protocol/json.ts";
import { BrokerError } from "../../protocol/problems.ts";

/** The places of the runner of a data directory. The folder is its user's alone (0700), and so is every file in it (0600). */
export interface RunnerFolder {
  readonly folder: string;
  /** Held by the runner for as long as it lives. */
  readonly lock: string;
  /** Where a server finds the runner. */
  readonly info: string;
  /** Who knows it may use the runner. */
  readonly secret: string;
  /** Tells the machine of a runner that dials in from others. */
  readonly instance: string;
  readonly log: string;
  readonly spool: string;
  /** One file for each living agent: who it is, for the runner after a crash. */
  readonly agents: string;
}

/** How a server reaches a runner. */
export interface RunnerInfo {
  readonly pid: number;
  /** See ProcessIdentity. */
  readonly startTime: string;
  readonly socket: string;
  readonly version: string;
}

/** Linux takes 107 bytes in a socket's path, macOS 103. */
const SOCKET_PATH_LIMIT_BYTES = 100;
const SHORT_FOLDER_PREFIX = "patchbay-runner-";

export function runnerFolder(dataDir: string): RunnerFolder {
  const folder = join(dataDir, "runner");
  return {
    folder,
    lock: join(folder, "lock"),
    info: join(folder, "runner.json"),
    secret: join(folder, "secret"),
    instance: join(folder, "instance"),
    log: join(folder, "log"),
    spool: join(folder, "spool"),
    agents: join(folder, "agents"),
  };
}

/** Makes a folder that is this user's alone, or finds it. @throws BrokerError data_dir_unusable for a link, or somebody else's folder */
export function makePrivateFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const entry = lstatSync(path);
  if (!entry.isDirectory() || entry.uid !== process.geteuid?.()) {
    throw new BrokerError("data_dir_unusable", `${path} is not a folder of this user. Remove it and try again.`);
  }
  if ((entry.mode & 0o077) !== 0) chmodSync(path, 0o700);
}

/** Written as a whole, or not at all. */
export function writePrivateFile(path: string, text: string): void {
  const draft = `${path}.${process.pid}-${randomBytes(4).toString("hex")}`;
  writeFileSync(draft, text, { mode: 0o600, flag: "wx" });
  renameSync(draft, path);
}

/** The secret, made when there is none. Only the holder of the lock may call it. */
export function makeSecret({ secret }: RunnerFolder): string {
  const known = readText(secret);
  if (known !== undefined && known.length >= 64) return known;
  const fresh = randomBytes(32).toString("hex");
  writePrivateFile(secret, fresh);
  return fresh;
}

/** The instance, made when there is none. Only the holder of the lock may call it. */
export function makeInstance({ instance }: RunnerFolder): string {
  const known = readText(instance);
  if (known !== undefined && /^[0-9a-f]{32}$/.test(known)) return known;
  const fresh = randomBytes(16).toString("hex");
  writePrivateFile(instance, fresh);
  return fresh;
}

export function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** undefined when there is none, or one that no runner of ours wrote. */
export function readRunnerInfo({ info }: RunnerFolder): RunnerInfo | undefined {
  try {
    const json: unknown = JSON.parse(readFileSync(info, "utf8"));
    const startTime = stringField(json, "startTime");
    const socket = stringField(json, "socket");
    const version = stringField(json, "version");
    if (!isJsonObject(json) || startTime === undefined || socket === undefined || version === undefined)
      return undefined;
    return typeof json["pid"] === "number" ? { pid: json["pid"], startTime, socket, version } : undefined;
  } catch {
    return undefined;
  }
}

/** A path for the socket: in the runner's folder, or in a short one elsewhere when that path is too long for a socket. */
export function socketPath({ folder }: RunnerFolder): string {
  const path = join(folder, "socket");
  if (Buffer.byteLength(path) <= SOCKET_PATH_LIMIT_BYTES) return path;
  // mkdtemp makes it anew, under a name that nobody could foresee, mode 0700.
  return join(mkdtempSync(join(tmpdir(), SHORT_FOLDER_PREFIX)), "socket");
}

/** Removes a socket that nobody listens on any more, and its short folder, if it has one. */
export function removeSocket(path: string): void {
  rmSync(path, { force: true });
  const folder = dirname(path);
  if (dirname(folder) !== tmpdir() || !basename(folder).startsWith(SHORT_FOLDER_PREFIX)) return;
  try {
    rmdirSync(folder);
  } catch {
    // Gone already, or not ours.
  }
}
