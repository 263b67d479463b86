import { createCounter } from "./counter.ts";
import { type Reader, type Sent, type SessionHistory, type Sight, sameSight, sightOf } from "./history.ts";
import { isJsonObject, word } from "./json.ts";

/** A command as it is sent, and what became of it. */
export interface Command {
  readonly sent: Sent;
  readonly frame: {
    readonly id: string;
    readonly event_type: Sent["event_type"];
    readonly payload: unknown;
    readonly delivery?: string;
  };
  /** Acknowledged, or refused for good. */
  settled: boolean;
}

/** A session as its clients know it together. */
export interface Watched {
  readonly id: string;
  readonly readers: Reader[];
  readonly commands: Map<string, Command>;
  /** Turns that were asked for or seen, and those of them that have ended. */
  readonly turns: Set<string>;
  readonly endedTurns: Set<string>;
  /** Whether its log has come to its end. */
  readonly isOver: boolean;
  /** The pid of the newest agent. */
  readonly agent: number | undefined;
  /** Goes up with each number that is seen for the first time, and each command that is settled. */
  readonly progress: ReturnType<typeof createCounter>;
  /** Called with each event that nobody had seen before, and without one when a command was settled. */
  onProgress: (sight?: Sight) => void;
  /** True when that holds, false when it still does not after so many milliseconds. Looked at whenever anybody sees something. */
  until(holds: () => boolean, patienceMs: number): Promise<boolean>;
  addReader(name: string): ReaderNotes;
  addCommand(frame: Command["frame"], names: string, text?: string): Command;
  settle(id: string, told: { readonly seq: number } | { readonly refusal: string }): void;
  history(rest: Pick<SessionHistory, "log" | "journals" | "probe" | "told">): SessionHistory;
}

/** Where a client writes down what it sees. */
export interface ReaderNotes {
  /** The last number that it has seen. */
  readonly last: number;
  begin(): void;
  take(text: string): Sight;
  complain(about: string): void;
}

export function watch(id: string, onProgress: () => void): Watched {
  const known = new Map<number, Sight>();
  const progress = createCounter();
  // Also goes up when a reader sees what others saw before it: `until` may wait for just that.
  const stirred = createCounter();
  const went = (sight?: Sight): void => {
    progress.add();
    stirred.add();
    onProgress();
    watched.onProgress(sight);
  };
  const commands = new Map<string, Command>();
  const readers: Reader[] = [];
  const turns = new Set<string>();
  const endedTurns = new Set<string>();
  let agent: number | undefined;
  let newestAgent = 0;
  let isOver = false;

  function note(sight: Sight): void {
    const turn = sight.turn_id ?? word(sight.fact, "turn_id");
    if (sight.event_type === "turn.started") turns.add(turn);
    if (sight.event_type === "turn.completed" || sight.event_type === "turn.failed") endedTurns.add(turn);
    if (sight.event_type === "session.state" && word(sight.fact, "state") === "ended") isOver = true;
    if (sight.event_type === "agent.started" && sight.seq > newestAgent && isJsonObject(sight.fact)) {
      newestAgent = sight.seq;
      agent = Number(sight.fact["pid"]);
    }
    went(sight);
  }

  const watched: Watched = {
    id,
    readers,
    commands,
    turns,
    endedTurns,
    get isOver() {
      return isOver;
    },
    get agent() {
      return agent;
    },
    progress,
    onProgress: () => {},
    async until(holds, patienceMs) {
      const deadline = performance.now() + patienceMs;
      while (!holds()) {
        if (!(await stirred.reach(stirred.value + 1, deadline - performance.now()))) return holds();
      }
      return true;
    },
    addReader(name) {
      const reader: Reader = { name, visits: [], complaints: [] };
      readers.push(reader);
      let last = 0;
      return {
        get last() {
          return last;
        },
        begin: () => void reader.visits.push({ after: last, sights: [] }),
        take(text) {
          const fresh = sightOf(text);
          const before = known.get(fresh.seq);
          // The same event is kept once, however many have seen it; one that differs is kept for the checker.
          const sight = before !== undefined && sameSight(before, fresh) ? before : fresh;
          reader.visits.at(-1)?.sights.push(sight);
          last = Math.max(last, sight.seq);
          if (before === undefined) {
            known.set(sight.seq, sight);
            note(sight);
          } else stirred.add();
          return sight;
        },
        complain: (about) => void reader.complaints.push(about),
      };
    },
    addCommand(frame, names, text) {
      const sent = { id: frame.id, event_type: frame.event_type, names, ...(text !== undefined && { text }) };
      const command: Command = { sent: { ...sent, acks: [], refusals: [] }, frame, settled: false };
      commands.set(frame.id, command);
      if (frame.event_type === "query") turns.add(names);
      return command;
    },
    settle(commandId, told) {
      const command = commands.get(commandId);
      if (command === undefined) return;
      if ("seq" in told) command.sent.acks.push(told.seq);
      else command.sent.refusals.push(told.refusal);
      command.settled = true;
      // A message that was refused begins no turn.
      if ("refusal" in told && command.sent.acks.length === 0) turns.delete(command.sent.names);
      went();
    },
    history: (rest) => ({ id, readers, sent: [...commands.values()].map(({ sent }) => sent), ...rest }),
  };
  return watched;
}
