import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import type { BrokerError } from "../../protocol/problems.ts";
import type { Run, Runner, RunnerFiles } from "../runner-port.ts";
import type { ProcessIdentity } from "../sweep.ts";
import { type ClientCalls, createClientCalls } from "./client-calls.ts";
import { type Connection, keepLinked } from "./client-link.ts";
import type { Frame } from "./frames.ts";
import type { Link } from "./link.ts";
import { createRemoteRun, type RemoteRun } from "./remote-run.ts";
import { packTranscript, unpackTranscript } from "./requests.ts";

export interface RemoteRunnerParts {
  readonly name: string;
  /** Each server of a runner has a higher one than those before it; a runner takes no server of a lower one than it has seen. */
  readonly epoch: number;
  /** The name of the server's data directory: epochs count within it. */
  readonly broker?: string;
  /** The runner dials in: it decides when, and a refusal is not for ever. */
  readonly isDialledIn?: boolean;
  /** Makes a link to the runner, or waits for one to be dialled in; called again after each link's end. Should not resolve with a broken one. */
  readonly connect: (signal: AbortSignal) => Promise<Connection>;
  /** How long a call waits for a link before it fails with runner_unavailable. */
  readonly patienceMs?: number;
  /** How long a link may be missing before runs are told that their runner is away. */
  readonly awayAfterMs?: number;
  /** The runner refuses this server for good: another one owns it (`details.reason` stale_owner), or versions do not fit. */
  readonly onLost?: (error: BrokerError) => void;
  /** A link is up: what the runner says of itself. */
  readonly onLinked?: (about: JsonObject) => void;
  /** The link that was up has ended. */
  readonly onUnlinked?: () => void;
}

export interface RemoteRunner extends Runner {
  /** Resolves when the first link is up. @throws BrokerError runner_unavailable, when the runner refuses this server */
  linked(): Promise<void>;
  isLinked(): boolean;
  /** A run that an earlier server started, while the runner is away: taken up when it is back, lost if it does not know it then. */
  adopt(run: string, process: ProcessIdentity | undefined): Run;
}

const PATIENCE_MS = 10_000;
const AWAY_AFTER_MS = 1000;

/** The server's side of a runner that is a program of its own, wherever it is. */
export function createRemoteRunner(parts: RemoteRunnerParts): RemoteRunner {
  const calls = createClientCalls(parts.name, parts.patienceMs ?? PATIENCE_MS);
  const runs = createRemoteRuns(calls);
  const first = Promise.withResolvers<void>();
  // Whoever wants to know asks; a refusal is also told to onLost.
  first.promise.catch(() => {});
  let link: Link | undefined;
  let awayTimer: NodeJS.Timeout | undefined;

  const linking = keepLinked({
    name: parts.name,
    epoch: parts.epoch,
    broker: parts.broker ?? "",
    isDialledIn: parts.isDialledIn ?? false,
    connect: parts.connect,
    up(to, welcome) {
      link = to;
      clearTimeout(awayTimer);
      const { about } = welcome;
      calls.up(to);
      runs.up(to, textsOf(welcome["runs"]));
      first.resolve();
      parts.onLinked?.(isJsonObject(about) ? about : {});
    },
    frame(frame) {
      if (frame.kind === "answer") calls.frame(frame);
      else runs.frame(frame);
    },
    drained() {},
    down() {
      link = undefined;
      calls.down();
      runs.down();
      parts.onUnlinked?.();
      awayTimer = setTimeout(() => runs.away(), parts.awayAfterMs ?? AWAY_AFTER_MS).unref();
    },
    refused(error) {
      if (parts.isDialledIn === true) {
        parts.onLost?.(error);
        return;
      }
      clearTimeout(awayTimer);
      calls.end(error);
      runs.away();
      first.reject(error);
      parts.onLost?.(error);
    },
  });

  return {
    name: parts.name,
    files: createRemoteFiles(calls, runs.getRid),
    linked: () => first.promise,
    isLinked: () => link !== undefined,
    adopt: (run, process) => runs.add(run, runs.newChannel(), { ...(process && { process, pid: process.pid }) }, link),
    async start(request) {
      await runs.getRid();
      const channel = runs.newChannel();
      const { json } = await calls.call("start", { request, channel });
      return runs.add(request.run, channel, json, link);
    },
    async join(run) {
      const channel = runs.newChannel();
      const { json } = await calls.call("join", { run, channel });
      return json["known"] === true ? runs.add(run, channel, json, link) : undefined;
    },
    runs: runs.list,
    async close() {
      clearTimeout(awayTimer);
      await linking.close();
    },
  };
}

function createRemoteRuns(calls: ClientCalls) {
  const byId = new Map<string, RemoteRun>();
  const byChannel = new Map<number, RemoteRun>();
  /** All that the runner has. */
  let known = new Set<string>();
  /** Acknowledged to the end, and perhaps not known to be so by the runner. */
  const forgotten = new Set<string>();
  /** Given up while the runner was away: these may still live, and must be gone before it gets anything new. */
  const abandoned = new Set<string>();
  let nextChannel = 1;

  function forget(run: string): void {
    calls.tell("forget", { run }, () => {
      forgotten.delete(run);
      abandoned.delete(run);
    });
  }

  return {
    list: () => [...known],
    /** What was given up is gone. @throws BrokerError runner_unavailable, as for any call */
    async getRid(): Promise<void> {
      const gone = [...abandoned].map(async (run) => {
        await calls.call("forget", { run });
        abandoned.delete(run);
      });
      await Promise.all(gone);
    },
    newChannel: () => nextChannel++,
    add(run: string, channel: number, described: JsonObject, over: Link | undefined): Run {
      const done = (): void => {
        if (byId.get(run) === remote) byId.delete(run);
        byChannel.delete(channel);
        known.delete(run);
        forgotten.add(run);
        forget(run);
      };
      const abandon = (): void => {
        abandoned.add(run);
        done();
      };
      const remote = createRemoteRun({ id: run, channel, described, calls, link: over, done, abandon });
      const former = byId.get(run);
      if (former !== undefined) {
        byChannel.delete(former.channel);
        // Nothing reaches that one any more: whoever waits for its end must not do so for ever.
        former.away(true);
      }
      byId.set(run, remote);
      byChannel.set(channel, remote);
      known.add(run);
      return remote.run;
    },
    up(to: Link, listed: readonly string[]) {
      known = new Set(listed.filter((run) => !forgotten.has(run)));
      for (const run of forgotten) forget(run);
      for (const remote of byId.values()) remote.linked(to);
    },
    down() {
      for (const remote of byId.values()) remote.unlinked();
    },
    away() {
      for (const remote of byId.values()) remote.away(true);
    },
    frame: (frame: Frame) => byChannel.get(frame.channel)?.frame(frame),
  };
}

function createRemoteFiles(calls: ClientCalls, getRid: () => Promise<void>): RunnerFiles {
  return {
    async readTranscript(place, cliSessionId) {
      const { json, attachment } = await calls.call("read", { place, cliSessionId });
      return json["known"] === true ? unpackTranscript(json["files"], attachment) : undefined;
    },
    async hasTranscript(place, cliSessionId) {
      const { json } = await calls.call("has", { place, cliSessionId });
      return json["known"] === true;
    },
    async writeTranscript(place, cliSessionId, transcript) {
      const { files, attachment } = packTranscript(transcript);
      await calls.call("store", { place, cliSessionId, files }, attachment);
    },
    async remove(place) {
      // An agent that still lives would make its folders anew.
      await getRid();
      await calls.call("remove", { place });
    },
  };
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((entry) => typeof entry === "string") : [];
}
