import { isJsonObject } from "../protocol/json.ts";
import { failureOf, PatchbayError } from "./errors.ts";

export interface HttpOptions {
  /** Origin of the server, without a slash at the end. */
  readonly origin: string;
  readonly fetch: typeof fetch;
  token(): string | undefined | Promise<string | undefined>;
}

export interface HttpCall {
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

/** One call of contract 4; the answer's body, or undefined when it has none. @throws PatchbayError */
export type Http = (method: string, path: string, call?: HttpCall) => Promise<unknown>;

function addressOf(origin: string, path: string, query: HttpCall["query"]): string {
  const url = new URL(origin + path);
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined) url.searchParams.set(name, String(value));
  return url.href;
}

async function read(response: Response): Promise<unknown> {
  const text = await response.text();
  if (text === "") return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    if (!response.ok) return undefined;
    throw new PatchbayError(
      { code: "unreachable", message: "The answer is not JSON: is this address a Patchbay server?", retry: false },
      cause,
    );
  }
}

function refusal(status: number, body: unknown): PatchbayError {
  const known = failureOf(isJsonObject(body) ? body["error"] : undefined);
  return (
    known ?? new PatchbayError({ code: "unreachable", message: `The server answered ${status}.`, retry: status >= 500 })
  );
}

/** Calls with the token as Bearer, and with cookies where a browser has them. */
export function createHttp(options: HttpOptions): Http {
  return async (method, path, call = {}) => {
    const token = await options.token();
    const headers: Record<string, string> = { accept: "application/json", ...call.headers };
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    const init: RequestInit = { method, headers, signal: call.signal ?? null };
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    let response: Response;
    try {
      response = await options.fetch(addressOf(options.origin, path, call.query), init);
    } catch (cause) {
      call.signal?.throwIfAborted();
      throw new PatchbayError(
        { code: "unreachable", message: `${options.origin} cannot be reached.`, retry: true },
        cause,
      );
    }
    const body = await read(response);
    if (!response.ok) throw refusal(response.status, body);
    return body;
  };
}
