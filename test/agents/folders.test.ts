import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { removeFolders, sessionFolders, transcriptExists } from "../../src/agents/folders.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

function place(root: string, sessionId = "s1") {
  return { workspaceRoot: join(root, "ws"), dataDir: join(root, "data"), tenant: "acme", sessionId };
}

/** All folders below, so that a refusal can be seen to have made none. */
function tree(root: string): string[] {
  return existsSync(root) ? readdirSync(root, { recursive: true }).map(String).sort() : [];
}

test("a session has a folder, a home and a config folder of its own", async () => {
  using temp = makeTempDir();
  const root = realpathSync(temp.path);
  const made = await sessionFolders(place(root));
  expect(made).toEqual({
    cwd: join(root, "ws/acme/sessions/s1"),
    home: join(root, "data/homes/s1"),
    configDir: join(root, "data/homes/s1/.claude"),
    relativeCwd: "sessions/s1",
  });
  for (const folder of [made.cwd, made.home, made.configDir]) expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(await sessionFolders(place(root))).toEqual(made);
});

test("a given cwd is relative to the tenant's folder, and made when it is missing", async () => {
  using temp = makeTempDir();
  const root = realpathSync(temp.path);
  mkdirSync(join(root, "ws/acme/projects/site"), { recursive: true });
  symlinkSync("projects", join(root, "ws/acme/p"));
  const cases = [
    ["projects/site", "projects/site"],
    ["./projects//site/", "projects/site"],
    ["p/site", "projects/site"],
    ["new/deep/er", "new/deep/er"],
    ["sessions2", "sessions2"],
    ["a..b/...", "a..b/..."],
    [".", "."],
  ] as const;
  for (const [cwd, relativeCwd] of cases) {
    const made = await sessionFolders({ ...place(root), cwd });
    expect(made).toMatchObject({ cwd: join(root, "ws/acme", relativeCwd), relativeCwd });
    expect(statSync(made.cwd).isDirectory()).toBe(true);
  }
});

verifies(
  "AGENT-CWD",
  "known bug 6: a cwd that leaves the tenant's folder in any reading is refused, and nothing is made",
  async () => {
    using temp = makeTempDir();
    const root = realpathSync(temp.path);
    const tenant = join(root, "ws/acme");
    mkdirSync(join(tenant, "sessions/other"), { recursive: true });
    mkdirSync(join(root, "ws/acme-evil"), { recursive: true });
    mkdirSync(join(root, "outside"));
    symlinkSync(join(root, "outside"), join(tenant, "out"));
    symlinkSync("../acme-evil", join(tenant, "sibling"));
    symlinkSync("sessions/other", join(tenant, "theirs"));
    symlinkSync("sessions", join(tenant, "all"));
    symlinkSync("nowhere", join(tenant, "broken"));
    symlinkSync("loop", join(tenant, "loop"));
    writeFileSync(join(tenant, "file"), "");
    const before = tree(root);
    const refused = [
      [
        "..",
        "../acme-evil",
        "../../etc",
        "a/../../b",
        "x/..",
        "/etc",
        "//etc",
        "/",
        join(root, "ws/acme-evil"),
        "~",
        "~root",
      ],
      ["a\0b", "\0", "%2e%2e", "%2E%2E/x", "a%2fb", "..\\x", "a\\b", "C:\\x", "C:x"],
      ["sessions", "sessions/s1", "./sessions/other", "Sessions/x", "sessions/new"],
      [
        "out",
        "out/x",
        "sibling",
        "sibling/x",
        "theirs",
        "theirs/x",
        "all",
        "all/new",
        "broken",
        "broken/x",
        "loop",
        "loop/x",
      ],
      ["file", "file/x", "n".repeat(256)],
    ].flat();
    for (const cwd of refused) {
      await expect(sessionFolders({ ...place(root), cwd }), JSON.stringify(cwd)).rejects.toMatchObject({
        code: "cwd_refused",
        details: { field: "cwd" },
      });
    }
    expect(tree(root)).toEqual(before);
  },
);

verifies("AGENT-CWD", "a link in the place of a tenant's or a session's folder is refused", async () => {
  using temp = makeTempDir();
  const root = realpathSync(temp.path);
  mkdirSync(join(root, "ws/rich"), { recursive: true });
  symlinkSync("rich", join(root, "ws/acme"));
  await expect(sessionFolders(place(root))).rejects.toMatchObject({ code: "cwd_refused" });
  mkdirSync(join(root, "ws/poor/sessions"), { recursive: true });
  mkdirSync(join(root, "ws/poor/mine"));
  symlinkSync("../mine", join(root, "ws/poor/sessions/s1"));
  await expect(sessionFolders({ ...place(root), tenant: "poor" })).rejects.toMatchObject({ code: "cwd_refused" });
});

test("a purge removes the session's own folder and home, and no other", async () => {
  using temp = makeTempDir();
  const root = realpathSync(temp.path);
  const given = await sessionFolders({ ...place(root), cwd: "projects/site" });
  const own = await sessionFolders(place(root));
  const other = await sessionFolders(place(root, "s2"));
  mkdirSync(join(own.cwd, "cache/mod"), { recursive: true });
  writeFileSync(join(own.cwd, "cache/mod/file"), "x");
  chmodSync(join(own.cwd, "cache/mod"), 0o555);
  symlinkSync(given.cwd, join(own.cwd, "link"));
  await removeFolders(place(root));
  expect([own.cwd, own.home].map((folder) => existsSync(folder))).toEqual([false, false]);
  expect([given.cwd, other.cwd, other.home].map((folder) => existsSync(folder))).toEqual([true, true, true]);
  await removeFolders(place(root));
});

test("a purge does not follow a link that lies where the sessions' folders were", async () => {
  using temp = makeTempDir();
  const root = realpathSync(temp.path);
  mkdirSync(join(root, "precious/s1"), { recursive: true });
  mkdirSync(join(root, "ws/acme"), { recursive: true });
  symlinkSync(join(root, "precious"), join(root, "ws/acme/sessions"));
  await removeFolders(place(root));
  expect(existsSync(join(root, "precious/s1"))).toBe(true);
});

test("ids that are no plain names never become paths", async () => {
  using temp = makeTempDir();
  for (const name of ["..", ".", "", "a/b", "../x", "a\0"]) {
    await expect(sessionFolders({ ...place(temp.path), tenant: name })).rejects.toThrow(RangeError);
    await expect(removeFolders({ ...place(temp.path), sessionId: name })).rejects.toThrow(RangeError);
  }
});

test("a transcript is found whatever folder the CLI put it in", async () => {
  using temp = makeTempDir();
  expect(await transcriptExists(temp.path, "abc")).toBe(false);
  mkdirSync(join(temp.path, "projects/-work-x"), { recursive: true });
  writeFileSync(join(temp.path, "projects/-work-x/abc.jsonl"), "{}\n");
  expect(await transcriptExists(temp.path, "abc")).toBe(true);
  expect(await transcriptExists(temp.path, "abd")).toBe(false);
});
