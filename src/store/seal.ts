import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import { BrokerError } from "../protocol/problems.ts";

/** AES-256-GCM: sizes in bytes. A nonce of 96 random bits is safe for 2^32 texts of one key (NIST SP 800-38D 8.3). */
const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const SHORTEST_KEY_CHARS = 32;
const FORM = /^v1\.([0-9a-f]{12})\.([A-Za-z0-9_-]+)$/;

/** Encrypts texts for the database. `about` says what a text is (its table, tenant and name): moved to another row, it does not open. */
export interface Sealer {
  /** With the first key: `v1.<id of the key>.<base64url of nonce, ciphertext and tag>`. */
  seal(text: string, about: readonly string[]): string;
  /** @throws BrokerError config_invalid (sealed with a key that is not here), internal (changed, or of another row) */
  open(sealed: string, about: readonly string[]): string;
  /** Whether it was sealed with the first key: if not, it is to be sealed anew. */
  isCurrent(sealed: string): boolean;
}

interface Key {
  readonly id: string;
  readonly bytes: Buffer;
}

function keyOf(text: string): Key {
  if (text.length < SHORTEST_KEY_CHARS) {
    throw new BrokerError(
      "config_invalid",
      `PATCHBAY_SECRETS_KEY: a key has at least ${SHORTEST_KEY_CHARS} characters. Make one with \`openssl rand -base64 32\`.`,
      { details: { name: "PATCHBAY_SECRETS_KEY" } },
    );
  }
  const bytes = Buffer.from(hkdfSync("sha256", text, "", "patchbay secrets", KEY_BYTES));
  return { id: createHash("sha256").update(bytes).digest("hex").slice(0, 12), bytes };
}

const unknownKey = (): BrokerError =>
  new BrokerError(
    "config_invalid",
    "PATCHBAY_SECRETS_KEY: something in the data directory was sealed with another key. Give that one too, after a comma; then both are known and the first one is used.",
    { details: { name: "PATCHBAY_SECRETS_KEY" } },
  );

/** No two lists give the same bytes, whatever is in their texts. */
const bytesOf = (about: readonly string[]): Buffer => Buffer.from(JSON.stringify(about));

/** The first key seals; all of them open. @throws BrokerError config_invalid (a key that is too short) */
export function createSealer(texts: readonly [string, ...string[]]): Sealer {
  const keys = texts.map(keyOf);
  const byId = new Map(keys.map((key) => [key.id, key.bytes]));
  const first = keyOf(texts[0]);
  return {
    seal(text, about) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(CIPHER, first.bytes, nonce, { authTagLength: TAG_BYTES }).setAAD(bytesOf(about));
      const sealed = Buffer.concat([nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
      return `v1.${first.id}.${sealed.toString("base64url")}`;
    },
    open(sealed, about) {
      const [, id = "", body = ""] = FORM.exec(sealed) ?? [];
      const key = byId.get(id);
      if (key === undefined) throw unknownKey();
      const bytes = Buffer.from(body, "base64url");
      try {
        const nonce = bytes.subarray(0, NONCE_BYTES);
        const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(bytesOf(about));
        decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
        return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]).toString();
      } catch (cause) {
        throw new BrokerError("internal", "A sealed text was changed, or is not where it was sealed for.", { cause });
      }
    },
    isCurrent: (sealed) => FORM.exec(sealed)?.[1] === first.id,
  };
}
