import type { Run } from "../agents/runner-port.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { AgentStart, Hosting } from "./hosting.ts";
import type { SessionRow } from "./rows.ts";
import type { Place, Slots } from "./slots.ts";

/** A process that has come to be, and its place among the living. */
export interface Started {
  readonly run: Run;
  readonly place: Place;
}

/** Starts of one session's agent, one after the other. */
export interface AgentStarts {
  /**
   * First a runner, then a place, so that nobody holds a place while a runner is away. undefined when it is not wanted any more.
   * @throws BrokerError as Hosting.start; the place has been left then
   */
  begin(wish: AgentStart, waiting: (reason: string) => void, wanted: () => boolean): Promise<Started | undefined>;
  /** Looks again at whether a start that waits is wanted. */
  withdraw(): void;
}

export function createAgentStarts(parts: {
  readonly row: SessionRow;
  readonly hosting: Hosting;
  readonly slots: Slots;
}): AgentStarts {
  const { row, hosting, slots } = parts;
  let withdrawal = new AbortController();

  /** Its runner went away in between: whoever waits for it does so again. */
  const waitsFor = (error: unknown): boolean =>
    error instanceof BrokerError &&
    error.code === "runner_unavailable" &&
    !hosting.isLocal(row.spec) &&
    row.spec.runner?.when_away !== "fail";

  return {
    async begin(wish, waiting, wanted) {
      withdrawal = new AbortController();
      while (wanted()) {
        await hosting.reach(row, waiting, withdrawal.signal).catch((error: unknown) => {
          if (wanted()) throw error;
        });
        if (!wanted()) break;
        const place = await slots.enter(row.tenant, waiting, wanted);
        if (place === undefined) break;
        try {
          return { run: await hosting.start(row, wish), place };
        } catch (error) {
          place.leave();
          if (!waitsFor(error)) throw error;
        }
      }
      return undefined;
    },
    withdraw() {
      withdrawal.abort();
      slots.withdraw();
    },
  };
}
