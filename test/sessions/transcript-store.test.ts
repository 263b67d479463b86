import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { RunnerFiles, Transcript } from "../../src/agents/runner-port.ts";
import { splitMirror, transcriptFileOf } from "../../src/sessions/transcript-lines.ts";
import {
  canMirror,
  catchUpWrites,
  copyWrites,
  loadTranscript,
  messageUuids,
  mirrorWrites,
  restoreTranscript,
} from "../../src/sessions/transcripts.ts";
import { openMemoryEngine } from "../kit/engines.ts";

const CLI = "8317f1ce-c7a8-4b2a-9e56-190ef9fe070f";
const OTHER = "0317f1ce-c7a8-4b2a-9e56-190ef9fe070f";
const MAIN = `${CLI}.jsonl`;
const SUBAGENT = `${CLI}/subagents/agent-a1.jsonl`;
const project = (file: string): string => `/srv/home/.claude/projects/-workspace/${file}`;

const mirror = (file: string, entries: readonly unknown[]): Buffer =>
  Buffer.from(JSON.stringify({ type: "transcript_mirror", filePath: project(file), entries }));
const user = (uuid: string, more: object = {}) => ({
  type: "user",
  uuid,
  message: { role: "user", content: uuid },
  ...more,
});
const text = (transcript: Transcript | undefined, file: string): string =>
  Buffer.from(transcript?.get(file) ?? []).toString();
const jsonl = (...entries: readonly unknown[]): Buffer =>
  Buffer.from(entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));

/** The mirror lines of a recorded dialogue with the real CLI, as they came. */
function recorded(version: string): string[] {
  const path = join(import.meta.dirname, "..", "transcripts", `14-mirror.${version}.ndjson`);
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.flatMap((line) =>
    line.startsWith('{"dir":"recv","msg":{"type":"transcript_mirror"') ? [line.slice(20, -1)] : [],
  );
}

test.each(["2.1.197", "2.1.332"])(
  "what CLI %s mirrored is stored and comes back as its file, byte for byte",
  async (version) => {
    await using engine = await openMemoryEngine();
    const { store } = engine;
    const lines = recorded(version);
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) await store.write(mirrorWrites("s1", Buffer.from(line)));
    const id = transcriptFileOf(JSON.parse(lines[0] ?? "").filePath)?.cliSessionId ?? "";
    const transcript = await loadTranscript(store, "s1", id);
    expect([...(transcript?.keys() ?? [])]).toEqual([`${id}.jsonl`]);
    // Every entry is in the line's own spelling: cut out of it, not made anew.
    const entries = text(transcript, `${id}.jsonl`).split("\n").filter(Boolean);
    for (const entry of entries) expect(lines.some((line) => line.includes(entry))).toBe(true);
    expect(entries.map((entry) => JSON.parse(entry))).toEqual(lines.flatMap((line) => JSON.parse(line).entries));
    expect(await loadTranscript(store, "s2", id)).toBeUndefined();
  },
);

test("any entries are cut out of their line as the bytes that they came as", () => {
  const entry = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 5 });
  const spaces = fc.constantFrom("", " ", "\t ");
  fc.assert(
    fc.property(fc.array(entry), spaces, fc.string(), (entries, space, path) => {
      const spelled = entries.map((one) => JSON.stringify(one));
      const line = `{"type":"transcript_mirror",${space}"filePath":${JSON.stringify(path)},"entries":[${spelled.map((one) => space + one).join(",")}]${space}}`;
      const cut = splitMirror(Buffer.from(line));
      expect(cut?.filePath).toBe(path);
      expect(cut?.entries.map(({ bytes }) => Buffer.from(bytes).toString().trim())).toEqual(spelled);
    }),
  );
  const odd = `{"entries":[{"n":1.50e+2,"s":"\\ud800\\u0000]}","entries":[1,{"a":[2]}]},{}],"filePath":"x","type":"transcript_mirror"}`;
  expect(splitMirror(Buffer.from(odd))?.entries.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual([
    `{"n":1.50e+2,"s":"\\ud800\\u0000]}","entries":[1,{"a":[2]}]}`,
    "{}",
  ]);
});

test("lines that are no mirror, and paths that would lead elsewhere, store nothing", () => {
  for (const line of [
    "",
    "{",
    "[]",
    '{"type":"transcript_mirror"}',
    '{"type":"transcript_mirror","filePath":1,"entries":[]}',
  ])
    expect(mirrorWrites("s1", Buffer.from(line))).toEqual([]);
  expect(
    mirrorWrites("s1", Buffer.from(JSON.stringify({ type: "assistant", filePath: project(MAIN), entries: [{}] }))),
  ).toEqual([]);
  for (const path of [
    "",
    MAIN,
    "/etc/passwd",
    project("notes.jsonl"),
    project(CLI),
    project(`${CLI}/../${OTHER}.jsonl`),
    project(`${CLI}/..`),
    project(`${CLI}//x.jsonl`),
    project(`../${MAIN}`),
    project(`${CLI}/.hidden`),
    project(`${CLI}/a\0b.jsonl`),
    project(`${CLI}/a\nb.jsonl`),
    project(`${CLI}/${"x".repeat(201)}`),
    project(`${CLI}/a/b/c/d/e/f/g.jsonl`),
    `C:\\projects\\x\\${MAIN}`,
  ])
    expect(transcriptFileOf(path), path).toBeUndefined();
  expect(transcriptFileOf(project(SUBAGENT))).toEqual({ cliSessionId: CLI, file: SUBAGENT });
  // Whatever stands before it is not ours to believe.
  expect(transcriptFileOf(`/somebody/else/projects/../projects/x/${MAIN}`)).toEqual({ cliSessionId: CLI, file: MAIN });
});

test("an entry that comes again is kept once; those without a uuid as often as they come; each conversation for itself", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const mode = { type: "mode", mode: "normal" };
  await store.write(mirrorWrites("s1", mirror(MAIN, [mode, user("u1"), user("u2")])));
  await store.write(mirrorWrites("s1", mirror(MAIN, [user("u2"), mode, user("u3")])));
  await store.write(mirrorWrites("s1", mirror(`${OTHER}.jsonl`, [user("u1")])));
  await store.write(mirrorWrites("s2", mirror(MAIN, [user("u1")])));
  expect(text(await loadTranscript(store, "s1", CLI), MAIN)).toBe(
    jsonl(mode, user("u1"), user("u2"), mode, user("u3")).toString(),
  );
  expect(text(await loadTranscript(store, "s1", OTHER), `${OTHER}.jsonl`)).toBe(jsonl(user("u1")).toString());
});

test("a subagent's transcript comes back beside the main one, its description as the file that the CLI keeps of it", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const about = (finished: boolean) => ({ type: "agent_metadata", agentType: "Explore", finished });
  await store.write(mirrorWrites("s1", mirror(SUBAGENT, [about(false), user("a1")])));
  expect(await loadTranscript(store, "s1", CLI)).toBeUndefined();
  await store.write(mirrorWrites("s1", mirror(MAIN, [user("u1")])));
  await store.write(mirrorWrites("s1", mirror(SUBAGENT, [user("a2"), about(true)])));
  const transcript = await loadTranscript(store, "s1", CLI);
  expect([...(transcript?.keys() ?? [])].sort()).toEqual(
    [MAIN, SUBAGENT, SUBAGENT.replace(".jsonl", ".meta.json")].sort(),
  );
  expect(text(transcript, SUBAGENT)).toBe(jsonl(user("a1"), user("a2")).toString());
  expect(text(transcript, SUBAGENT.replace(".jsonl", ".meta.json"))).toBe('{"agentType":"Explore","finished":true}');
});

test("a copy takes the place of what is stored, whatever its files are; a copy without the main file does not", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  await store.write(mirrorWrites("s1", mirror(MAIN, [user("old")])));
  const output = `${CLI}/tool-results/output.txt`;
  const copy = new Map<string, Uint8Array>([
    [MAIN, Buffer.concat([jsonl(user("u1")), Buffer.from('{"type":"half')])],
    [output, Buffer.from("two\n\nlines\n")],
    [`${OTHER}.jsonl`, jsonl(user("foreign"))],
  ]);
  await store.write(copyWrites("s1", CLI, copy));
  const transcript = await loadTranscript(store, "s1", CLI);
  expect(text(transcript, MAIN)).toBe(`${jsonl(user("u1")).toString()}{"type":"half\n`);
  expect(text(transcript, output)).toBe("two\n\nlines\n");
  expect(await loadTranscript(store, "s1", OTHER)).toBeUndefined();
  expect(copyWrites("s1", CLI, new Map())).toEqual([]);
});

test("catching up adds the entries that the store has not, and all of a conversation that it has nothing of", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const file = new Map<string, Uint8Array>([[MAIN, jsonl({ type: "mode" }, user("u1"), user("u2"), user("u3"))]]);
  await store.write(await catchUpWrites(store, "s1", CLI, file));
  expect(text(await loadTranscript(store, "s1", CLI), MAIN)).toBe(text(file, MAIN));
  expect(await catchUpWrites(store, "s1", CLI, file)).toEqual([]);

  await store.write(mirrorWrites("s2", mirror(MAIN, [{ type: "mode" }, user("u1")])));
  await store.write(await catchUpWrites(store, "s2", CLI, file));
  // The mirror line that was on its way changes nothing any more.
  await store.write(mirrorWrites("s2", mirror(MAIN, [user("u2"), user("u3")])));
  expect(text(await loadTranscript(store, "s2", CLI), MAIN)).toBe(text(file, MAIN));
});

test("a transcript that is larger than one read comes back whole and in order", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const entries = Array.from({ length: 1203 }, (_, n) =>
    user(`u${n}`, { pad: "x".repeat(n % 100 === 0 ? 700_000 : 10) }),
  );
  await store.write(mirrorWrites("s1", mirror(MAIN, entries)));
  expect(text(await loadTranscript(store, "s1", CLI), MAIN) === jsonl(...entries).toString()).toBe(true);
});

test("user messages are found by their uuid: those that began a turn, and those folded into one", () => {
  const folded = {
    type: "attachment",
    uuid: "a1",
    attachment: { type: "queued_command", source_uuid: "u2", prompt: "x" },
  };
  const waiting = { type: "queue-operation", operation: "enqueue", content: "u3" };
  const transcript: Transcript = new Map([
    [
      MAIN,
      Buffer.concat([
        jsonl(user("u1"), { type: "assistant", uuid: "b1" }, folded, waiting),
        Buffer.from('{"type":"user","uuid":"u4"'),
      ]),
    ],
    [SUBAGENT, jsonl(user("u5"))],
  ]);
  expect([...messageUuids(transcript)]).toEqual(["u1", "u2"]);
});

test.each([
  ["2.1.197", true],
  ["2.1.332", true],
  ["2.2.0", true],
  ["3.0.0-beta.1", true],
  ["2.1.196", false],
  ["2.0.999", false],
  ["1.9.900", false],
  ["nonsense", false],
  [null, false],
])("a CLI of version %s prints its transcript: %s", (version, expected) => {
  expect(canMirror(version)).toBe(expected);
});

test("before a start, a home gets the conversation that it lacks, else the one to fork, and no other", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const written: string[] = [];
  const held = new Set<string>();
  const files: RunnerFiles = {
    readTranscript: async () => undefined,
    hasTranscript: async (_place, id) => held.has(id),
    async writeTranscript(_place, id, transcript) {
      expect(transcript.has(`${id}.jsonl`)).toBe(true);
      written.push(id);
      held.add(id);
    },
    remove: async () => undefined,
  };
  const place = { tenant: "acme", sessionId: "s1" };
  const wanted = { cliSessionId: CLI, fork: { cliSessionId: OTHER } };
  expect(await restoreTranscript(store, files, place, wanted)).toBeUndefined();
  await store.write(mirrorWrites("s1", mirror(`${OTHER}.jsonl`, [user("u1")])));
  expect(await restoreTranscript(store, files, place, wanted)).toEqual({ cliSessionId: OTHER });
  expect(await restoreTranscript(store, files, place, wanted)).toEqual({ cliSessionId: OTHER });
  expect(written).toEqual([OTHER]);
  await store.write(mirrorWrites("s1", mirror(MAIN, [user("u1"), user("u2")])));
  expect(await restoreTranscript(store, files, place, wanted)).toBeUndefined();
  expect(await restoreTranscript(store, files, place, wanted)).toBeUndefined();
  expect(written).toEqual([OTHER, CLI]);
});
