import fc from "fast-check";
import { expect, test } from "vitest";
import type { FrameKind } from "../../src/agents/runner/frames.ts";
import { createStreamLink, type Link } from "../../src/agents/runner/link.ts";
import { sendMessage } from "../../src/agents/runner/messages.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { createWire, makePairedRunners, type PairedRunners } from "./paired-runner.ts";
import { requestFor, shellProgram, watchRun } from "./watched-run.ts";

type Json = JsonObject[string];

/** What a peer that knows the secret, and means harm or is broken, may say. */
type Utterance =
  | {
      readonly kind: "frame";
      readonly frame: {
        kind: FrameKind;
        channel: number;
        more: boolean;
        count: number | undefined;
        body: Uint8Array;
      };
    }
  | { readonly kind: "call"; readonly id: number; readonly json: JsonObject; readonly isAwaited: boolean }
  | { readonly kind: "ticks"; readonly count: number };

const FRAME_KINDS: readonly FrameKind[] = [
  "answer",
  "output",
  "taken",
  "taken",
  "taken",
  "ack",
  "ack",
  "ack",
  "write",
  "write",
  "written",
  "exit",
];
const RUNS = ["one", "two", "three"];

const oddNumber = fc.constantFrom<Json>(
  ...[-1, 0, 1, 2, 3, 1.5, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 48, Number.MAX_SAFE_INTEGER, 1e300],
  ...["1", null, true, {}, []],
);
const fewNumbers = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 4 }) },
  { weight: 1, arbitrary: oddNumber },
);
const runName = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom<Json>(...RUNS) },
  { weight: 1, arbitrary: fc.constantFrom<Json>("", "../x", "\u0000", 7, null, "x".repeat(5000)) },
);
const place = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Json>({ tenant: "acme", sessionId: "s1" }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Json>({}, null, { tenant: "..", sessionId: "/" }, { tenant: "a", sessionId: 1 }),
  },
);
const method = fc.constantFrom<Json>(
  ...["start", "start", "start", "join", "join", "join", "forget", "stop", "read", "has", "store", "remove"],
  ...["", "constructor", 7],
);

/** Calls that start this program. */
function callJson(program: string): fc.Arbitrary<JsonObject> {
  const request = fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({ run: runName, place, lineLimitBytes: fewNumbers }).map((odd) => ({
        ...requestFor(program),
        ...odd,
      })),
    },
    { weight: 1, arbitrary: fc.constantFrom<Json>(null, {}, { options: [], sharedEnv: { PATH: 7 } }) },
  );
  return fc.record(
    {
      method,
      run: runName,
      request: request.map((value): Json => JSON.parse(JSON.stringify(value))),
      channel: fewNumbers,
      after: fewNumbers,
      eofMs: fewNumbers,
      termMs: fewNumbers,
      place,
      cliSessionId: fc.constantFrom<Json>("0b8f3c5e-8a3f-4b43-9a4e-0d6f3a6a2b11", "x", 3),
      files: fc.constantFrom<Json>([], {}, [{ path: "../../x", bytes: 1 }], [{ path: "x.jsonl", bytes: 2 ** 40 }]),
    },
    { requiredKeys: ["method", "run", "request", "channel", "place"] },
  );
}

function utterance(program: string): fc.Arbitrary<Utterance> {
  const small = fc.uint8Array({ maxLength: 30 });
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant("call" as const),
        id: fc.integer({ min: 0, max: 0xffff_ffff }),
        json: callJson(program),
        isAwaited: fc.boolean(),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant("frame" as const),
        frame: fc.record({
          kind: fc.oneof(
            { weight: 40, arbitrary: fc.constantFrom(...FRAME_KINDS) },
            { weight: 1, arbitrary: fc.constant<FrameKind>("call") },
          ),
          channel: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 0, max: 0xffff_ffff })),
          more: fc.boolean(),
          count: fc.oneof(
            { weight: 50, arbitrary: fc.constantFrom(0, 1, 2, 100, 2 ** 48 - 1) },
            { weight: 1, arbitrary: fc.constant(undefined) },
          ),
          body: small,
        }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("ticks" as const), count: fc.integer({ min: 1, max: 5 }) }) },
  );
}

/** A server without manners. */
interface RawOwner {
  readonly link: Link;
  /** The runs that the runner has at the beginning. */
  readonly runs: readonly string[];
  /** Resolves with the next answer, or when the link has ended. */
  answered(): Promise<Json>;
  readonly ended: Promise<unknown>;
}

async function rawOwner(runners: PairedRunners, epoch: number): Promise<RawOwner> {
  const wire = createWire();
  runners.host().accept(createStreamLink(wire.runner));
  const link = createStreamLink(wire.server);
  const welcomed = Promise.withResolvers<string[]>();
  const ended = Promise.withResolvers<undefined>();
  let answer = Promise.withResolvers<Json>();
  link.open({
    frame({ kind, body }) {
      if (kind === "welcome") welcomed.resolve(JSON.parse(body.toString("utf8")).runs);
      if (kind !== "answer") return;
      answer.resolve(JSON.parse(body.subarray(4).toString("utf8")));
      answer = Promise.withResolvers();
    },
    drained() {},
    closed: () => ended.resolve(undefined),
  });
  const hello = JSON.stringify({ versions: { min: 1, max: 1 }, epoch, broker: "" });
  link.send({ kind: "hello", channel: 0, body: Buffer.from(hello) });
  const answered = (): Promise<Json> => Promise.race([answer.promise, ended.promise]);
  return { link, runs: await welcomed.promise, answered, ended: ended.promise };
}

async function ask({ link, answered }: RawOwner, json: JsonObject): Promise<Json> {
  const answer = answered();
  await sendMessage(link, "call", 1, json);
  return answer;
}

async function say({ link, answered }: RawOwner, said: Utterance): Promise<void> {
  if (said.kind === "call") {
    const answer = answered();
    await sendMessage(link, "call", said.id, said.json);
    if (said.isAwaited) await answer;
  } else if (said.kind === "ticks")
    for (let tick = 0; tick < said.count; tick++) await new Promise((resolve) => setImmediate(resolve));
  else {
    const { count, ...frame } = said.frame;
    link.send({ ...frame, ...(count !== undefined && { count }) });
  }
}

test("whatever a server says, in well-formed frames, the runner lives and serves the next one", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const program = shellProgram(temp.path, "seq 1 2000; read -r line; echo $line; exit 3");
  let epoch = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(utterance(program), { minLength: 1, maxLength: 30 }), async (said) => {
      epoch += 1;
      const owner = await rawOwner(runners, epoch);
      const request: JsonObject = { ...requestFor(program), run: "one" };
      await say(owner, { kind: "call", id: 1, json: { method: "start", request, channel: 1 }, isAwaited: true });
      for (const each of said) await say(owner, each);
      // The next ones take over while all of that may still be under way.
      const next = await rawOwner(runners, epoch + 1);
      for (const [index, run] of next.runs.entries())
        void sendMessage(next.link, "call", index, { method: "forget", run });
      epoch += 2;
      const server = await runners.server({ epoch });
      const watched = watchRun(await server.start(requestFor(program)));
      watched.run.write(1, { type: "x" });
      expect(await watched.exited()).toMatchObject({ code: 3 });
      expect(watched.outputs).toHaveLength(2001);
      watched.run.acknowledge(watched.exits[0]?.number ?? 0);
      await server.close();
    }),
    { numRuns: 30 },
  );
}, 30_000);

test("a call with a number that no frame has room for is refused, and nothing of it is done", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const owner = await rawOwner(runners, 1);
  const request: JsonObject = { ...requestFor(shellProgram(temp.path, "echo '{}'; sleep 300")), run: "one" };
  const malformed = { problem: { code: "bad_request", details: { field: "channel" } } };
  for (const channel of [2 ** 32, -1, 1.5, "1", undefined]) {
    expect(await ask(owner, { method: "start", request, channel })).toMatchObject(malformed);
    expect(runners.host().runCount()).toBe(0);
  }
  expect(await ask(owner, { method: "start", request, channel: 2 ** 32 - 1 })).toMatchObject({ written: 0 });
  for (const channel of [2 ** 32, null]) {
    expect(await ask(owner, { method: "join", run: "one", channel, after: 0 })).toMatchObject(malformed);
  }
  expect(await ask(owner, { method: "stop", run: "one", eofMs: 2 ** 31, termMs: 0 })).toMatchObject({
    problem: { code: "bad_request" },
  });
});

test("a line for stdin that never ends ends the link, not the runner", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const owner = await rawOwner(runners, 1);
  const request: JsonObject = { ...requestFor(shellProgram(temp.path, "cat")), run: "one" };
  await ask(owner, { method: "start", request, channel: 1 });
  let isEnded = false;
  void owner.ended.then(() => {
    isEnded = true;
  });
  const body = Buffer.alloc(128 * 1024, "x");
  for (let sent = 0; !isEnded; sent++) {
    expect(sent).toBeLessThan(1200);
    owner.link.send({ kind: "write", channel: 1, more: true, count: 1, body });
    await owner.link.ready();
    if (sent % 16 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const server = await runners.server({ epoch: 2 });
  const run = await server.join("one");
  if (run === undefined) throw new Error("the run is there");
  const watched = watchRun(run);
  run.write(1, { type: "x" });
  await watched.until(() => watched.outputs.length === 1);
  expect(watched.texts()).toEqual(['{"type":"x"}']);
});

test("what nobody was sent cannot be acknowledged away", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const owner = await rawOwner(runners, 1);
  const request: JsonObject = { ...requestFor(shellProgram(temp.path, "seq 1 2000; sleep 300")), run: "one" };
  await ask(owner, { method: "start", request, channel: 1 });
  // Joined without `after` nothing flows, whatever was written meanwhile.
  await expect.poll(async () => ask(owner, { method: "join", run: "one", channel: 1 })).toMatchObject({ last: 2000 });
  owner.link.send({ kind: "taken", channel: 1, count: 2 ** 40 });
  owner.link.send({ kind: "ack", channel: 1, count: 2 ** 40 });
  await ask(owner, { method: "stop", run: "nobody" });
  const server = await runners.server({ epoch: 2 });
  const run = await server.join("one");
  if (run === undefined) throw new Error("the run is there");
  const watched = watchRun(run);
  await watched.until(() => watched.outputs.length === 2000);
  expect(watched.texts()).toEqual(Array.from({ length: 2000 }, (_, index) => String(index + 1)));
});

test("greetings that the runner cannot take are refused with their reason, and cost the owner nothing", async () => {
  using temp = makeTempDir();
  await using runners = makePairedRunners(temp.path);
  const owner = await runners.server({ epoch: 5 });
  const versions = { min: 1, max: 1 };
  const cases: [Json, string][] = [
    [{ versions: { min: 2, max: 3 }, epoch: 6, broker: "" }, "version_unsupported"],
    [{ versions: "1", epoch: 6, broker: "" }, "hello_malformed"],
    [{ versions, epoch: -1, broker: "" }, "hello_malformed"],
    [{ versions, epoch: 4, broker: "" }, "stale_owner"],
  ];
  for (const [hello, code] of cases) {
    const wire = createWire();
    runners.host().accept(createStreamLink(wire.runner));
    const link = createStreamLink(wire.server);
    const said: Json[] = [];
    const ended = Promise.withResolvers<void>();
    link.open({
      frame: ({ kind, body }) => said.push([kind, JSON.parse(body.toString("utf8"))]),
      drained() {},
      closed: () => ended.resolve(),
    });
    link.send({ kind: "hello", channel: 0, body: Buffer.from(JSON.stringify(hello)) });
    await ended.promise;
    expect(said).toMatchObject([["refused", { code, message: expect.any(String) }]]);
  }
  expect(owner.isLinked()).toBe(true);
});
