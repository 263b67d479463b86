import { readFileSync, statSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { createSealer } from "../../src/store/seal.ts";
import { sealingKeys } from "../../src/store/sealing-keys.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

const ONE = "the-first-key-of-thirty-two-characters";
const TWO = "another-key-which-came-a-year-later";

test("what was sealed opens where it was sealed for, and is never the same twice", () => {
  const sealer = createSealer([ONE]);
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), fc.array(fc.string(), { maxLength: 3 }), (text, about) => {
      const sealed = sealer.seal(text, about);
      expect(sealed).toMatch(/^v1\.[0-9a-f]{12}\.[A-Za-z0-9_-]+$/);
      expect(sealer.open(sealed, about)).toBe(text);
      expect(sealer.seal(text, about)).not.toBe(sealed);
      expect(() => sealer.open(sealed, [...about, "x"])).toThrow(/not where it was sealed for/);
    }),
  );
  expect(() => sealer.open(sealer.seal("x", ["a", "bc"]), ["ab", "c"])).toThrow(/not where it was sealed for/);
});

test("a text of which one bit was turned, or a part is missing, does not open", () => {
  const sealer = createSealer([ONE]);
  const [version, id, body = ""] = sealer.seal("a secret", ["here"]).split(".");
  const bytes = Buffer.from(body, "base64url");
  for (let at = 0; at < bytes.length; at++) {
    const turned = Buffer.from(bytes);
    turned.writeUInt8(turned.readUInt8(at) ^ 1, at);
    expect(() => sealer.open(`${version}.${id}.${turned.toString("base64url")}`, ["here"])).toThrow(/was changed/);
    const cut = bytes.subarray(0, at).toString("base64url");
    expect(() => sealer.open(`${version}.${id}.${cut}`, ["here"])).toThrow();
  }
});

test("a new key seals, the old one still opens; without it, it is said which setting is missing one", () => {
  const old = createSealer([ONE]).seal("a secret", ["here"]);
  const both = createSealer([TWO, ONE]);
  expect(both.open(old, ["here"])).toBe("a secret");
  expect([both.isCurrent(old), both.isCurrent(both.seal("x", []))]).toEqual([false, true]);
  const only = createSealer([TWO]);
  for (const sealed of [old, "v1", "", "plain text"]) {
    expect(() => only.open(sealed, ["here"])).toThrow(expect.objectContaining({ code: "config_invalid" }));
  }
  expect(() => createSealer(["short"])).toThrow(/at least 32 characters/);
  expect(() => createSealer([ONE, "short"])).toThrow(/at least 32 characters/);
});

test("without a given key one is made in the data directory, for its owner only, and kept", () => {
  using folder = makeTempDir();
  const made = sealingKeys(folder.path, undefined);
  expect(made).toHaveLength(1);
  expect(statSync(`${folder.path}/secrets.key`).mode & 0o777).toBe(0o600);
  expect(sealingKeys(folder.path, undefined)).toEqual(made);
  expect(sealingKeys(folder.path, TWO)).toEqual([TWO, ...made]);
  expect(sealingKeys(folder.path, `${TWO},${ONE}`)).toEqual([TWO, ONE, ...made]);
  createSealer(made);
});

test("a given key makes no file, and a key file that cannot be used stops the start", () => {
  using folder = makeTempDir();
  expect(sealingKeys(folder.path, ONE)).toEqual([ONE]);
  expect(() => readFileSync(`${folder.path}/secrets.key`)).toThrow();
  writeFileSync(`${folder.path}/secrets.key`, "");
  expect(() => createSealer(sealingKeys(folder.path, undefined))).toThrow(
    expect.objectContaining({ code: "config_invalid" }),
  );
  expect(() => sealingKeys(`${folder.path}/absent`, undefined)).toThrow(
    expect.objectContaining({ code: "data_dir_unusable" }),
  );
});
