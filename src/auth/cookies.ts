import { hashOf, newSecret } from "./key-format.ts";
import type { Principal } from "./port.ts";

const COOKIE_LIFE_MS = 12 * 3_600_000;

/** Console logins. In memory: a restart asks for a new ticket. */
export interface Cookies {
  create(principal: Principal): { readonly cookie: string; readonly maxAgeS: number };
  find(cookie: string): Principal | undefined;
  revoke(principalId: string): void;
}

export function createCookies(now: () => number): Cookies {
  const entries = new Map<string, Principal & { readonly expiresAtMs: number }>();
  const nameOf = (cookie: string): string => hashOf(cookie).toString("hex");
  return {
    create(principal) {
      for (const [name, entry] of entries) if (entry.expiresAtMs <= now()) entries.delete(name);
      const cookie = newSecret();
      const expiresAtMs = Math.min(now() + COOKIE_LIFE_MS, principal.expiresAtMs ?? Number.POSITIVE_INFINITY);
      entries.set(nameOf(cookie), { ...principal, expiresAtMs });
      return { cookie, maxAgeS: Math.max(0, Math.floor((expiresAtMs - now()) / 1000)) };
    },
    find(cookie) {
      const principal = entries.get(nameOf(cookie));
      return principal !== undefined && principal.expiresAtMs > now() ? principal : undefined;
    },
    revoke(principalId) {
      for (const [name, entry] of entries) if (entry.id === principalId) entries.delete(name);
    },
  };
}
