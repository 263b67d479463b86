import { createHash } from "node:crypto";
import type { Sight } from "./history.ts";
import type { Client } from "./socket-client.ts";
import type { Command, Watched } from "./watched.ts";

/** Asks one session for work, as fast as it gets it done. */
export interface Driver {
  /** Sends nothing more but what ends the turns that never end by themselves. */
  stop(): void;
}

interface DriverOptions {
  readonly random: () => number;
  readonly texts: readonly WeightedText[];
  readonly senders: readonly Client[];
  /** Hands a command in over HTTP. */
  post(command: Command): void;
}

/** How often something is said, and what; `uuid` is the message's. */
export type WeightedText = readonly [weight: number, text: (random: () => number, uuid: string) => string];

const upTo = (random: () => number, most: number): number => 1 + Math.floor(random() * most);

/** What a user may say to the fake agent, by how often. */
export const FAKE_TEXTS: readonly WeightedText[] = [
  [6, (random) => `hello ${upTo(random, 1000)}`],
  [5, (random) => `!stream ${upTo(random, 200)} ${upTo(random, 300)} 0`],
  [4, (random) => `!stream ${upTo(random, 60)} ${upTo(random, 100)} 3`],
  [4, (random) => `!lines ${upTo(random, 400)} 20 1`],
  [1, (random) => `!line ${1_000_000 + upTo(random, 100_000)}`],
  [4, () => "!ask"],
  [2, () => "!ask2"],
  [1, () => "!question"],
  [2, () => "!background"],
  [1, () => "!cancel"],
  [1, () => "!error"],
  [1, () => "!die 3"],
  [1, () => "!kill"],
  [1, () => "!stall"],
];

function textOf(texts: readonly WeightedText[], random: () => number, uuid: string): string {
  let left = random() * texts.reduce((sum, [weight]) => sum + weight, 0);
  for (const [weight, text] of texts) {
    left -= weight;
    if (left < 0) return text(random, uuid);
  }
  return `hello ${uuid}`;
}

/** A UUID that is the same for the same random numbers. */
export function uuidOf(random: () => number): string {
  const hex = createHash("sha1").update(`${random()} ${random()} ${random()}`).digest("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), `4${hex.slice(13, 16)}`, `a${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    "-",
  );
}

/** Adds the command that asks for a turn. */
export function queryOf(session: Watched, uuid: string, text: string, delivery?: string): Command {
  const frame = { id: uuid, event_type: "query" as const, payload: { text, uuid }, ...(delivery && { delivery }) };
  return session.addCommand(frame, uuid, text);
}

export function startDriver(session: Watched, { random, texts, senders, post }: DriverOptions): Driver {
  const most = upTo(random, 3);
  const stalling = new Set<string>();
  let isStopped = false;

  function hand(command: Command): void {
    const sender = senders[Math.floor(random() * (senders.length + 1))];
    if (sender?.send === undefined) post(command);
    else sender.send(command);
    // The same command by two roads at once.
    if (random() < 0.1) post(command);
  }
  function control(request: Readonly<Record<string, unknown>>): void {
    const id = uuidOf(random);
    const payload = { type: "control_request", request_id: id, request };
    hand(session.addCommand({ id, event_type: "control_request", payload }, id));
  }
  function next(): void {
    const uuid = uuidOf(random);
    const text = textOf(texts, random, uuid);
    if (text === "!stall" || text.startsWith("hang")) stalling.add(uuid);
    hand(queryOf(session, uuid, text, random() < 0.15 ? "at_once" : undefined));
    if (random() < 0.05) control({ subtype: "interrupt" });
    if (random() < 0.08) control({ subtype: "set_model", model: "default" });
  }
  function refill(): void {
    const open = (): number => session.turns.size - session.endedTurns.size;
    while (!isStopped && open() < most) next();
  }
  session.onProgress = (sight?: Sight) => {
    // The agent has taken a message that it will work on for ever: it echoes it, or (2.1.197, late) has begun to answer.
    const isWork = sight?.event_type === "user" || sight?.event_type === "stream_event";
    if (isWork && stalling.has(sight.turn_id ?? "")) control({ subtype: "interrupt" });
    refill();
  };
  refill();
  return {
    stop: () => {
      isStopped = true;
    },
  };
}
