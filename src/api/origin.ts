import { isIP } from "node:net";

/** Whose page sent a request: nobody's (no browser), our own, one that is listed or ours under another loopback name, or a stranger's. */
export type OriginKind = "absent" | "own" | "allowed" | "refused";

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?$/i;

const bare = (name: string): string => name.replace(/^\[|\]$/g, "");

function isLoopback(name: string): boolean {
  const host = bare(name.toLowerCase());
  if (host === "localhost" || host.endsWith(".localhost") || host === "::1") return true;
  return isIP(host) === 4 && host.startsWith("127.");
}

/**
 * Whether a Host header names us. IP literals pass: a page that got here by DNS rebinding carries its own name, never an address.
 * Anything else must be loopback or listed, with or without its port.
 */
export function isOurHost(host: string | undefined, allowedHosts: readonly string[]): boolean {
  const match = HOST.exec(host ?? "");
  const name = match?.[1]?.toLowerCase();
  if (host === undefined || name === undefined) return false;
  if (isLoopback(name) || isIP(bare(name)) !== 0) return true;
  return allowedHosts.some((allowed) => {
    const lower = allowed.toLowerCase();
    return lower === name || lower === host.toLowerCase();
  });
}

export interface OriginFacts {
  readonly origin: string | undefined;
  /** The Host header, already found to be ours. */
  readonly host: string;
  readonly localPort: number | undefined;
  readonly tls: boolean;
  readonly allowedOrigins: readonly string[];
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { "http:": "80", "https:": "443" };
const portOf = (url: URL): string => url.port || (DEFAULT_PORTS[url.protocol] ?? "");

/** Judges an Origin header. Its scheme may be https where we serve plain HTTP: that is a proxy which speaks TLS for us. */
export function classifyOrigin({ origin, host, localPort, tls, allowedOrigins }: OriginFacts): OriginKind {
  if (origin === undefined) return "absent";
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  const usable = url !== undefined && url.origin === origin && url.protocol in DEFAULT_PORTS;
  if (!usable) return "refused";
  const schemeFits = url.protocol === "https:" || !tls;
  const asked = new URL(`${url.protocol}//${host}`);
  if (schemeFits && asked.host === url.host) return "own";
  if (allowedOrigins.includes(origin)) return "allowed";
  // The same server under another of its loopback names: localhost for 127.0.0.1.
  const sameServer = isLoopback(asked.hostname) && isLoopback(url.hostname) && portOf(url) === String(localPort);
  return schemeFits && sameServer ? "allowed" : "refused";
}
