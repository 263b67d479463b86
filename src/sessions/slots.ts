/** How many agents may live, and start, at once. */
export interface SlotLimits {
  readonly liveAgents: number;
  readonly liveAgentsPerTenant: number;
  /** Starting is what costs CPU (spec/claude-protocol 4.1). */
  readonly startingAgents: number;
}

/** A place among the living agents. */
export interface Place {
  /** It has started: the next one may. */
  ready(): void;
  leave(): void;
}

interface Waiter {
  readonly tenant: string;
  readonly isWanted: () => boolean;
  readonly admit: (place: Place | undefined) => void;
}

/** Admits agents: within a tenant in order of arrival, between tenants in turn. */
export interface Slots {
  /** A place, at once or when there is one; undefined when it is no longer wanted by then. `waiting` is told if it has to wait. */
  enter(tenant: string, waiting: (reason: string) => void, isWanted: () => boolean): Promise<Place | undefined>;
  /** A place for an agent that lives already, whatever the limits. */
  occupy(tenant: string): Place;
  /** A session may have become idle: who waits for a place asks for it again. */
  seek(): void;
  /** Looks again at who waits and is no longer wanted. */
  withdraw(): void;
}

/** `makeRoom` is asked to take the process of an idle session of that tenant (undefined = any), when somebody waits for a place. */
export function createSlots(limits: SlotLimits, makeRoom: (tenant: string | undefined) => void): Slots {
  const living = new Map<string, number>();
  let total = 0;
  let starting = 0;
  let waiters: Waiter[] = [];

  const livesOf = (tenant: string): number => living.get(tenant) ?? 0;
  const fits = (tenant: string): boolean =>
    starting < limits.startingAgents && total < limits.liveAgents && livesOf(tenant) < limits.liveAgentsPerTenant;

  const take = (tenant: string, isStarting: boolean): Place => {
    let starts = isStarting;
    let isHere = true;
    total += 1;
    living.set(tenant, livesOf(tenant) + 1);
    if (starts) starting += 1;
    const ready = (): void => {
      if (!starts) return;
      starts = false;
      starting -= 1;
      admit();
    };
    return {
      ready,
      leave() {
        if (!isHere) return;
        isHere = false;
        total -= 1;
        living.set(tenant, livesOf(tenant) - 1);
        if (livesOf(tenant) === 0) living.delete(tenant);
        ready();
        admit();
      },
    };
  };

  /** The tenant with the fewest living agents goes first: one that starts many does not keep the others out. */
  const next = (): Waiter | undefined => {
    let best: Waiter | undefined;
    for (const waiter of waiters) {
      if (fits(waiter.tenant) && (best === undefined || livesOf(waiter.tenant) < livesOf(best.tenant))) best = waiter;
    }
    return best;
  };

  const admit = (): void => {
    for (const waiter of waiters.filter((item) => !item.isWanted())) {
      waiters = waiters.filter((item) => item !== waiter);
      waiter.admit(undefined);
    }
    for (let waiter = next(); waiter !== undefined; waiter = next()) {
      waiters = waiters.filter((item) => item !== waiter);
      waiter.admit(take(waiter.tenant, true));
    }
  };

  /** Full of living agents rather than of starting ones: an idle one can make room. */
  const askForRoom = (tenant: string): void => {
    if (livesOf(tenant) >= limits.liveAgentsPerTenant) makeRoom(tenant);
    else if (total >= limits.liveAgents) makeRoom(undefined);
  };

  return {
    async enter(tenant, waiting, isWanted) {
      if (fits(tenant) && !waiters.some((waiter) => waiter.tenant === tenant)) return take(tenant, true);
      waiting("It waits for a place: the limit of agents is reached.");
      const entered = new Promise<Place | undefined>((admitted) => {
        waiters.push({ tenant, isWanted, admit: admitted });
      });
      askForRoom(tenant);
      return entered;
    },
    occupy: (tenant) => take(tenant, false),
    seek() {
      const waiter = waiters.find((item) => item.isWanted());
      if (waiter !== undefined) askForRoom(waiter.tenant);
    },
    withdraw: admit,
  };
}
