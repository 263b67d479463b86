import type { DialledRunner, DialledRunners } from "../agents/runner/dialled-runners.ts";
import type { Runner } from "../agents/runner-port.ts";
import { stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import type { SessionRow, Spec } from "./rows.ts";
import { deletePlacement, readPlacement, readPlacements, readPurged, savePlacement } from "./runner-rows.ts";

/** Whose runner, and what it says of its machine. */
export interface Placed {
  readonly runner: Runner;
  /** The server's own. */
  readonly isLocal: boolean;
  /** For one that dials in. */
  readonly dialled?: DialledRunner;
}

type Placeable = Pick<SessionRow, "id" | "tenant" | "spec">;
type Wish = NonNullable<Spec["runner"]>;

/** Which runner a session lives on. One that dials in is chosen at its first start, and kept: its folders are there. */
export interface Placement {
  /** It lives on the server's own runner. */
  isLocal(spec: Spec): boolean;
  /** The runner of a session that has one; undefined for one that has not started yet. */
  of(row: Placeable): Promise<Placed | undefined>;
  /**
   * The session's runner, linked; chosen now if it has none. `waiting` is told what it waits for.
   * @throws BrokerError runner_unavailable, when it is away and the session does not wait for it
   */
  reach(row: Placeable, waiting: (reason: string) => void, signal: AbortSignal): Promise<Placed>;
  /** Resolves with true as soon as the runner is linked, with false after a time. */
  back(runner: DialledRunner, withinMs: number, signal: AbortSignal): Promise<boolean>;
  /** Removes a purged session's folders (it is marked as purged): now, or when a runner that has them is back. */
  remove(session: { readonly id: string; readonly tenant: string }): Promise<void>;
  close(): void;
}

export interface PlacementParts {
  readonly store: Store;
  /** undefined: sessions live on runners that dial in only. */
  readonly local: Runner | undefined;
  readonly dialled: DialledRunners | undefined;
  /** How long a session with `when_away: fail` holds on to a runner that is away, in milliseconds. */
  readonly failAfterMs: number;
  /** How long such a session waits for a first runner. */
  readonly firstRunnerMs: number;
  /** Resolves when the agents that a runner should not have any more are gone. */
  readonly cleaned: (runner: Runner) => Promise<void>;
  readonly report: (error: unknown) => void;
}

const ANY: Wish = { labels: {}, when_away: "wait" };

export function createPlacement(parts: PlacementParts): Placement {
  const { store, local, dialled } = parts;
  const names = new Map<string, string>();
  const wishOf = (spec: Spec): Wish | undefined => spec.runner ?? (local === undefined ? ANY : undefined);

  const nameOf = async (id: string): Promise<string | undefined> => {
    const name = names.get(id) ?? (await readPlacement(store, id));
    if (name !== undefined) names.set(id, name);
    return name;
  };

  const placed = (runner: DialledRunner): Placed => ({ runner: runner.remote, isLocal: false, dialled: runner });

  /** The bound one if it is here; another one when there is none, or when the session has given it up. */
  const pick = (tenant: string, wish: Wish, bound: string | undefined): DialledRunner | undefined => {
    const mine = bound === undefined ? undefined : dialled?.get(tenant, bound);
    if (mine?.isLinked() === true) return mine;
    if (mine !== undefined && (wish.when_away === "wait" || mine.awayMs() < parts.failAfterMs)) return undefined;
    return best(dialled?.list(tenant) ?? [], wish.labels);
  };

  const until = async <T>(look: () => T | undefined, withinMs: number, signal: AbortSignal): Promise<T | undefined> => {
    const found = look();
    if (found !== undefined || signal.aborted) return found;
    const { promise, resolve } = Promise.withResolvers<T | undefined>();
    const check = (): void => {
      const now = look();
      if (now !== undefined) resolve(now);
    };
    const stop = dialled?.onLinked(check);
    const timer = Number.isFinite(withinMs) ? setTimeout(() => resolve(look()), withinMs).unref() : undefined;
    const abort = (): void => resolve(undefined);
    signal.addEventListener("abort", abort, { once: true });
    const result = await promise;
    stop?.();
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    return result;
  };

  /** What purged sessions have left on a machine that was away. */
  const sweep = async ({ tenant, name, remote }: DialledRunner): Promise<void> => {
    const purged = await readPurged(store, tenant, name);
    // An agent that still lives would make them anew.
    await parts.cleaned(remote);
    for (const sessionId of purged) {
      await remote.files.remove({ tenant, sessionId });
      await store.write([deletePlacement(sessionId, name)]);
    }
  };
  const stopSweeping = dialled?.onLinked((runner) => void sweep(runner).catch(parts.report));

  return {
    isLocal: (spec) => wishOf(spec) === undefined,
    async of({ id, tenant, spec }) {
      if (wishOf(spec) === undefined) return local && { runner: local, isLocal: true };
      const name = await nameOf(id);
      return name === undefined || dialled === undefined ? undefined : placed(dialled.get(tenant, name));
    },
    async reach({ id, tenant, spec }, waiting, signal) {
      const wish = wishOf(spec);
      if (wish === undefined && local !== undefined) return { runner: local, isLocal: true };
      const { labels, when_away } = wish ?? ANY;
      const bound = await nameOf(id);
      const look = (): DialledRunner | undefined => pick(tenant, wish ?? ANY, bound);
      if (look() === undefined) waiting(`It waits for ${inWords(bound, labels)}.`);
      const patienceMs = bound === undefined ? parts.firstRunnerMs : parts.failAfterMs;
      const runner = await until(look, when_away === "wait" ? Number.POSITIVE_INFINITY : patienceMs, signal);
      if (runner === undefined) throw away(bound, labels);
      if (runner.name !== bound) {
        await store.write(savePlacement(id, tenant, runner.name));
        names.set(id, runner.name);
      }
      return placed(runner);
    },
    back: async (runner, withinMs, signal) =>
      (await until(() => runner.isLinked() || undefined, withinMs, signal)) === true,
    async remove({ id, tenant }) {
      names.delete(id);
      const runners = await readPlacements(store, id);
      if (runners.length === 0) return local?.files.remove({ tenant, sessionId: id });
      for (const name of runners) {
        const runner = dialled?.get(tenant, name);
        if (runner?.isLinked() === true) await sweep(runner).catch(parts.report);
      }
    },
    close: () => stopSweeping?.(),
  };
}

/** Of those that are here and have the labels, the one with the fewest agents. */
function best(runners: readonly DialledRunner[], labels: Wish["labels"]): DialledRunner | undefined {
  const fits = (runner: DialledRunner): boolean =>
    runner.isLinked() && Object.entries(labels).every(([key, value]) => runner.labels()[key] === value);
  const load = (runner: DialledRunner): number => runner.remote.runs().length;
  return runners.filter(fits).toSorted((one, other) => load(one) - load(other))[0];
}

function inWords(bound: string | undefined, labels: Wish["labels"]): string {
  if (bound !== undefined) return `the runner ${bound}`;
  const list = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return list.length === 0 ? "a runner to dial in" : `a runner with the labels ${list.join(", ")}`;
}

function away(bound: string | undefined, labels: Wish["labels"]): BrokerError {
  const message = `There is no link to ${inWords(bound, labels)}. Start it with \`patchbay runner --broker\`, then try again.`;
  return new BrokerError("runner_unavailable", message, {
    details: { ...(bound !== undefined && { runner: bound }), labels },
  });
}

/** The folder that a session's folders are in, on its runner's machine; undefined where nobody knows it yet. */
export const workspaceRootOf = ({ dialled }: Placed): string | undefined =>
  dialled && stringField(dialled.about(), "workspace_root");
