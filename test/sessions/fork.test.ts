import { expect, test } from "vitest";
import { createLogs } from "../../src/log/logs.ts";
import { seq } from "../../src/protocol/ids.ts";
import { forkInput, planFork } from "../../src/sessions/fork.ts";
import { insertSession, readSession, type SessionRow } from "../../src/sessions/rows.ts";
import { newState, snapshotOf } from "../../src/sessions/state.ts";
import { loadTranscript, mirrorWrites } from "../../src/sessions/transcripts.ts";
import type { Store } from "../../src/store/port.ts";
import { openMemoryEngine } from "../kit/engines.ts";

const CLI = "8317f1ce-c7a8-4b2a-9e56-190ef9fe070f";
const CLEARED = "9317f1ce-c7a8-4b2a-9e56-190ef9fe070f";
const entry = (type: string, uuid: string) => ({ type, uuid });
const noFiles = async () => undefined;

const mirror = (file: string, entries: readonly unknown[]): Buffer =>
  Buffer.from(JSON.stringify({ type: "transcript_mirror", filePath: `/h/.claude/projects/-w/${file}`, entries }));

function rowOf(id: string, more: Partial<SessionRow> = {}): SessionRow {
  const base = { name: null, metadata: {}, createdAtMs: 1, updatedAtMs: 1, head: seq(0), reserved: 0, mark: 0 };
  const spec = { agent: { model: "opus" }, cwd: `sessions/${id}`, ownFolder: true };
  return { ...base, id, tenant: "acme", spec, snapshot: snapshotOf(newState(CLI)), ...more };
}

/** A parent with two turns and a subagent, all of it mirrored. */
async function parentIn(store: Store): Promise<void> {
  await store.write([
    insertSession(rowOf("parent")),
    ...mirrorWrites(
      "parent",
      mirror(`${CLI}.jsonl`, [entry("user", "u1"), entry("assistant", "a1"), entry("user", "u2")]),
    ),
    ...mirrorWrites("parent", mirror(`${CLI}/subagents/agent-x.jsonl`, [entry("assistant", "x1")])),
    ...mirrorWrites("parent", mirror(`${CLI}.jsonl`, [entry("system", "s1"), entry("assistant", "a2")])),
  ]);
}

/** What a new session `child` has after the fork: uuids of its main file, and its other files. */
async function forked(store: Store, at?: string, readTranscript = noFiles) {
  const from = { session_id: "parent", ...(at !== undefined && { at }) };
  const { fork, writes } = await planFork({ store, readTranscript }, from, "acme", 77);
  await store.write([insertSession(rowOf("child")), ...writes("child")]);
  const transcript = await loadTranscript(store, "child", fork.cliSessionId);
  const main = Buffer.from(transcript?.get(`${fork.cliSessionId}.jsonl`) ?? []).toString();
  const uuids = main.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line).uuid]));
  return { fork, uuids, files: [...(transcript?.keys() ?? [])] };
}

test("a fork has the whole conversation of its parent, with its subagents, and the parent keeps its own", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  const { fork, uuids, files } = await forked(store);
  expect(fork).toEqual({ cliSessionId: CLI });
  expect(uuids).toEqual(["u1", "a1", "u2", "s1", "a2"]);
  expect(files).toEqual([`${CLI}.jsonl`, `${CLI}/subagents/agent-x.jsonl`]);
  await store.write(mirrorWrites("child", mirror(`${CLI}.jsonl`, [entry("user", "u3")])));
  const parent = await loadTranscript(store, "parent", CLI);
  expect(Buffer.from(parent?.get(`${CLI}.jsonl`) ?? []).toString()).not.toContain("u3");
});

test("a fork at a message ends with it, be it the user's or the assistant's", async () => {
  for (const [at, expected] of [
    ["a1", ["u1", "a1"]],
    ["u2", ["u1", "a1", "u2"]],
  ] as const) {
    await using engine = await openMemoryEngine();
    await parentIn(engine.store);
    expect((await forked(engine.store, at)).uuids).toEqual(expected);
  }
});

test("a fork may name a message from before /clear: it gets the conversation of that time", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  const row = await readSession(store, "parent");
  const snapshot = JSON.stringify({ ...row?.snapshot, cliSessionId: CLEARED });
  await store.write([
    { sql: "UPDATE sessions SET snapshot = ? WHERE id = 'parent'", params: [snapshot] },
    ...mirrorWrites("parent", mirror(`${CLEARED}.jsonl`, [entry("user", "u9")])),
  ]);
  const { fork, uuids } = await forked(store, "a1");
  expect([fork.cliSessionId, uuids]).toEqual([CLI, ["u1", "a1"]]);
  const whole = await planFork({ store, readTranscript: noFiles }, { session_id: "parent" }, "acme", 1);
  expect(whole.fork.cliSessionId).toBe(CLEARED);
});

test("a message that the conversation has not is refused with the field's name; so are a subagent's and a note of the CLI's", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  for (const at of ["nowhere", "x1", "s1"]) {
    const refused = planFork({ store, readTranscript: noFiles }, { session_id: "parent", at }, "acme", 1);
    await expect(refused, at).rejects.toMatchObject({ code: "bad_request", details: { field: "at" } });
  }
});

test("a session of another tenant, and one that never was, look the same", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  const parts = { store, readTranscript: noFiles };
  const foreign = await planFork(parts, { session_id: "parent" }, "globex", 1).catch((error: unknown) => error);
  const missing = await planFork(parts, { session_id: "nobody" }, "acme", 1).catch((error: unknown) => error);
  expect(foreign).toMatchObject({ code: "not_found" });
  expect(foreign).toEqual(missing);
});

test("a session that never had a turn forks into an empty one", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await store.write([insertSession(rowOf("parent"))]);
  expect((await forked(store)).uuids).toEqual([]);
});

test("what is not stored yet is taken from the CLI's own files", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  const lines = ["u1", "a1", "u2", "s1", "a2", "a3", "a4"].map((uuid) =>
    JSON.stringify(entry(uuid.startsWith("u") ? "user" : "assistant", uuid)),
  );
  const asked: string[] = [];
  const files = async (_row: SessionRow, id: string) => {
    asked.push(id);
    return new Map([[`${CLI}.jsonl`, Buffer.from(`${lines.join("\n")}\n`)]]);
  };
  const parts = { store, readTranscript: files };
  const { writes } = await planFork(parts, { session_id: "parent", at: "a3" }, "acme", 1);
  await store.write([insertSession(rowOf("child")), ...writes("child")]);
  const main = Buffer.from((await loadTranscript(store, "child", CLI))?.get(`${CLI}.jsonl`) ?? []).toString();
  expect(
    main
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line).uuid),
  ).toEqual(["u1", "a1", "u2", "s1", "a2", "a3"]);
  await planFork(parts, { session_id: "parent", at: "a4" }, "acme", 1);
  expect(asked).toEqual([CLI]);
});

test("a fork of a fork that has not begun is one of the conversation that it would have begun with", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  const { fork, writes } = await planFork(
    { store, readTranscript: noFiles },
    { session_id: "parent", at: "u2" },
    "acme",
    1,
  );
  const child = rowOf("child", { snapshot: snapshotOf(newState(CLEARED)) });
  await store.write([insertSession({ ...child, spec: { ...child.spec, fork } }), ...writes("child")]);
  const again = await planFork({ store, readTranscript: noFiles }, { session_id: "child" }, "acme", 1);
  expect(again.fork).toEqual({ cliSessionId: CLI });
});

test("the log of a fork begins with where it comes from, and goes on after that; the parent's policy holds for it", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await parentIn(store);
  await store.write([{ sql: "UPDATE sessions SET policy = '{}' WHERE id = 'parent'", params: [] }]);
  await forked(store, "a1");
  const { log, last, jumped } = await createLogs(store).open("child");
  expect([last, jumped, log.head()]).toEqual([1, false, 1]);
  const { events } = await log.page({ after: seq(0), limit: 10, restricted: false });
  expect(events.map((event) => JSON.parse(Buffer.from(event.envelope).toString()))).toEqual([
    {
      session_id: "child",
      seq: 1,
      event_type: "session.forked",
      origin: "SYSTEM_EVENT",
      source: "broker",
      timestamp_ms: 77,
      payload: { session_id: "parent", at: "a1" },
    },
  ]);
  expect(await store.read("SELECT policy FROM sessions WHERE id = 'child'")).toEqual([{ policy: "{}" }]);
});

test("a fork has its parent's options, and its folder only if that one was named", () => {
  const own = rowOf("parent");
  expect(forkInput(own, { name: "second" })).toEqual({
    agent: { model: "opus" },
    name: "second",
    resume_from: { session_id: "parent" },
  });
  const named = rowOf("parent", {
    spec: { agent: {}, cwd: "shop", ownFolder: false, onCrash: "continue", idleTimeoutS: 5 },
  });
  expect(forkInput(named, { at: "a1" })).toEqual({
    agent: {},
    cwd: "shop",
    on_crash: "continue",
    idle_timeout_s: 5,
    resume_from: { session_id: "parent", at: "a1" },
  });
  expect(forkInput(named, { cwd: "other" }).cwd).toBe("other");
});
