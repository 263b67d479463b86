import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { customAlphabet } from "nanoid";

const newId = customAlphabet("0123456789abcdefghijklmnopqrstuvwxyz", 12);
const KEY = /^pb_([0-9a-z]{4,32})_[A-Za-z0-9_-]{20,}$/;

/** 256 random bits as text: a key's secret, a ticket, a cookie. */
export const newSecret = (): string => randomBytes(32).toString("base64url");

/** A fast hash is right here: the secrets are random, not chosen by people. */
export const hashOf = (token: string): Buffer => createHash("sha256").update(token).digest();

/** A new key `pb_<id>_<secret>`; its id may be shown and logged, the rest is the secret. */
export function newKey(): { readonly id: string; readonly key: string } {
  const id = newId();
  return { id, key: `pb_${id}_${newSecret()}` };
}

/** The id to look a token up by. One that has not our form (an operator's own PATCHBAY_ADMIN_KEY) is found by a part of its hash. */
export function keyIdOf(token: string): string {
  return KEY.exec(token)?.[1] ?? `own${hashOf(token).toString("hex").slice(0, 13)}`;
}

/** Whether the token names its key by id: then failures can be counted for that key. */
export const hasKeyForm = (token: string): boolean => KEY.test(token);

export function sameHash(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}
