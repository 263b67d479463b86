import { duplexPair } from "node:stream";
import { expect, test } from "vitest";
import { createDialledRunners, type DialledRunners } from "../../src/agents/runner/dialled-runners.ts";
import { createStreamLink, type Link } from "../../src/agents/runner/link.ts";
import { createMessageJoiner, sendMessage } from "../../src/agents/runner/messages.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { BrokerError } from "../../src/protocol/problems.ts";

const LOST = { output() {}, written() {}, away() {} };

const identity = (process: string, instance = "instance-0123456") => ({
  tenant: "default",
  name: "box",
  instance,
  process,
  labels: {},
});

const makeRunners = (): DialledRunners =>
  createDialledRunners({ epoch: 1, broker: "b", known: [], save() {}, report() {} });

/** A runner written by hand: it says that it has these runs, and answers each call as it is told to. */
function dialIn(
  runners: DialledRunners,
  runs: readonly string[],
  answer: (json: JsonObject) => JsonObject | undefined,
) {
  const [there, here] = duplexPair();
  const link: Link = createStreamLink(here);
  const joiner = createMessageJoiner();
  const calls: JsonObject[] = [];
  link.open({
    frame(frame) {
      if (frame.kind === "hello") {
        const body = Buffer.from(JSON.stringify({ version: 1, about: {}, runs }));
        link.send({ kind: "welcome", channel: 0, body });
      }
      if (frame.kind !== "call") return;
      const message = joiner.push(frame);
      if (message === undefined) return;
      calls.push(message.json);
      const json = answer(message.json);
      if (json !== undefined) void sendMessage(link, "answer", frame.channel, json);
    },
    drained() {},
    closed() {},
  });
  runners.accept(identity("process-01234567"), there);
  return { link, calls };
}

test("the stream of a runner that is refused may fail without ending the server", async () => {
  const runners = makeRunners();
  const linked = new Promise((resolve) => runners.onLinked(resolve));
  dialIn(runners, [], () => undefined);
  await linked;
  const [second] = duplexPair();
  expect(() => runners.accept(identity("process-76543210", "instance-6543210"), second)).toThrow(BrokerError);
  const closed = new Promise((resolve) => second.once("close", resolve));
  // As a WebSocket's stream does for a frame over the limit. Nobody listening would be an uncaught exception.
  expect(second.listenerCount("error")).toBeGreaterThan(0);
  second.destroy(new Error("Max payload size exceeded"));
  await closed;
  await runners.close();
});

test("a start does not wait for ever for the end of what was given up, when the link breaks before that is told", async () => {
  const runners = createDialledRunners({ epoch: 1, broker: "b", known: [], save() {}, report() {}, patienceMs: 50 });
  const { remote } = runners.get("default", "box");
  const linked = (): Promise<unknown> => new Promise((resolve) => runners.onLinked(resolve));
  const first = linked();
  const one = dialIn(runners, ["old"], () => ({ known: true, last: 0, written: 0 }));
  await first;
  const run = await remote.join("old");
  const gone = new Promise((resolve) => run?.attach(0, { ...LOST, exited: resolve }));
  one.link.destroy();
  await expect.poll(() => remote.isLinked(), { interval: 5 }).toBe(false);
  run?.abandon();
  await gone;
  const second = linked();
  const two = dialIn(runners, ["old"], () => undefined);
  await second;
  const started = remote.start({
    run: "new",
    place: { tenant: "default", sessionId: "ses_1" },
    options: {},
    cliSessionId: "00000000-0000-4000-8000-000000000000",
    sharedEnv: {},
    rerun: false,
    mirror: false,
    lineLimitBytes: 1000,
  });
  started.catch(() => {});
  await expect.poll(() => two.calls.length, { interval: 5 }).toBeGreaterThan(0);
  expect(two.calls.every((call) => call["method"] === "forget")).toBe(true);
  two.link.destroy();
  await expect(started).rejects.toMatchObject({ code: "runner_unavailable" });
  await runners.close();
});

test("who waits for the end of a run learns that another one has joined it over a later link", async () => {
  const runners = makeRunners();
  const { remote } = runners.get("default", "box");
  const linked = new Promise((resolve) => runners.onLinked(resolve));
  dialIn(runners, ["stray"], () => ({ known: true, last: 0, written: 0 }));
  await linked;
  const first = await remote.join("stray");
  const away = new Promise<boolean>((resolve) => first?.attach(0, { ...LOST, exited() {}, away: resolve }));
  await remote.join("stray");
  expect(await away).toBe(true);
  await runners.close();
});
