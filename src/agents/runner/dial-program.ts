import { randomBytes } from "node:crypto";
import { realpathSync } from "node:fs";
import { BrokerError } from "../../protocol/problems.ts";
import type { StopPatience } from "../port.ts";
import { processLauncher } from "../process.ts";
import { type DialEnd, type DialTarget, dial } from "./dial.ts";
import { createHost, type Host } from "./host.ts";
import { createLedger } from "./ledger.ts";
import { makeInstance, makePrivateFolder, runnerFolder } from "./runner-folder.ts";
import { holdFolder, sweepLeftovers } from "./runner-home.ts";

export interface DialProgramOptions {
  /** The broker's origin, `http:`, `https:`, `ws:` or `wss:`; a path is kept. */
  readonly broker: string;
  readonly token: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  readonly version: string;
  /** @throws BrokerError agent_unavailable */
  readonly binary: () => Promise<{ readonly command: string; readonly version: string }>;
  /** Variables that every agent of this machine gets. */
  readonly env: Readonly<Record<string, string>>;
  /** How long agents go on without a broker before they are stopped, in milliseconds. */
  readonly awayMs: number;
  /** Says a line to the person who started it. */
  readonly tell: (line: string) => void;
}

const STOP_PATIENCE: StopPatience = { eofMs: 3000, termMs: 2000 };
const TELL_MS = 2000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
/** A connection that held so long was a good one: the next pause is short again. */
const GOOD_MS = 200;

/**
 * Owns agents on this machine for a broker elsewhere: dials in, and again for ever, until it is told to stop. Resolves when it was; its
 * agents are gone then. @throws BrokerError forbidden (the broker will not have it), data_dir_in_use, agent_unavailable
 */
export async function runDialledRunner(options: DialProgramOptions, stopping: AbortSignal): Promise<void> {
  const folder = runnerFolder(options.dataDir);
  makePrivateFolder(options.dataDir);
  const lock = holdFolder(folder);
  if (lock === undefined) {
    throw new BrokerError(
      "data_dir_in_use",
      `A runner has ${options.dataDir} already. Give this one another --data-dir.`,
    );
  }
  makePrivateFolder(options.workspaceRoot);
  const { version: claude } = await options.binary();
  await sweepLeftovers(folder, options.dataDir);
  const ledger = createLedger(folder.agents);
  const host = createHost({
    launcher: processLauncher,
    settings: { ...options, binary: options.binary },
    spoolFolder: folder.spool,
    about: {
      pid: process.pid,
      version: options.version,
      claude_version: claude,
      workspace_root: realpathSync(options.workspaceRoot),
    },
    changed: () => life.check(),
    began: ledger.add,
    ended: (agent) => agent !== undefined && ledger.remove(agent),
  });
  const life = createLife(host, options.awayMs, options.tell);
  const target = { url: addressOf(options, makeInstance(folder)), token: options.token };
  // A stop ends the agents first, which wants the link: only then is it cut.
  const cut = new AbortController();
  try {
    const end = await dialForEver(target, host, options, { stopping, cut: cut.signal });
    if (end !== undefined) throw new BrokerError("forbidden", `The broker refused this runner. ${end.why}`);
  } finally {
    life.close();
    await host.stopAll(STOP_PATIENCE, TELL_MS);
    await host.close();
    cut.abort();
    lock.close();
  }
}

/** Resolves with the broker's last word when that is final, and with undefined when the program is to stop. */
async function dialForEver(
  target: DialTarget,
  host: Host,
  { name, broker, tell }: DialProgramOptions,
  { stopping, cut }: { readonly stopping: AbortSignal; readonly cut: AbortSignal },
): Promise<DialEnd | undefined> {
  let pauseMs = FIRST_PAUSE_MS;
  const linked = (link: Parameters<Host["accept"]>[0]): void => {
    tell(`linked to ${broker} as ${name}`);
    host.accept(link);
  };
  while (!stopping.aborted) {
    const connection = dial(target, linked, cut);
    const end = await orAborted(connection, stopping);
    if (end === undefined) break;
    if (end.isFinal) return end;
    pauseMs = end.openMs >= GOOD_MS ? FIRST_PAUSE_MS : Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    // With jitter: many runners lose the same broker at the same moment.
    const waitMs = Math.round(pauseMs * (0.5 + Math.random() / 2));
    tell(`no link to ${broker}: ${end.why}; trying again in ${waitMs} ms`);
    await orAborted(pause(waitMs), stopping);
  }
  return undefined;
}

async function pause(ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  setTimeout(resolve, ms);
  await promise;
}

/** undefined when the signal aborts first. It is listened to for no longer than that: a runner dials for years. */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  if (signal.aborted) return undefined;
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const abort = (): void => resolve(undefined);
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** @throws BrokerError config_invalid */
function addressOf({ broker, name, labels }: DialProgramOptions, instance: string): string {
  const url = URL.canParse(broker) ? new URL(broker) : undefined;
  const protocol = url && { "http:": "ws:", "ws:": "ws:", "https:": "wss:", "wss:": "wss:" }[url.protocol];
  if (url === undefined || protocol === undefined || url.username !== "" || url.password !== "") {
    const message = `--broker: ${broker} is no address such as wss://patchbay.example.org, without a name or password in it.`;
    throw new BrokerError("config_invalid", message, { details: { name: "broker" } });
  }
  url.protocol = protocol;
  url.pathname = `${url.pathname.replace(/\/+$/, "").replace(/\/v1\/runner$/, "")}/v1/runner`;
  url.hash = "";
  url.search = "";
  const query = { name, instance, process: randomBytes(16).toString("hex") };
  for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
  for (const [key, value] of Object.entries(labels)) url.searchParams.append("label", `${key}=${value}`);
  return url.href;
}

/** A broker that stays away cannot stop its agents: the runner does. */
function createLife(host: Host, awayMs: number, tell: (line: string) => void): { check(): void; close(): void } {
  let timer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    if (host.runCount() > 0) tell(`no broker for ${Math.round(awayMs / 1000)} s: agents are stopped`);
    void host.stopAgents(STOP_PATIENCE);
  };
  return {
    check() {
      if (host.isOwned()) {
        clearTimeout(timer);
        timer = undefined;
      } else timer ??= setTimeout(stop, awayMs).unref();
    },
    close: () => clearTimeout(timer),
  };
}
