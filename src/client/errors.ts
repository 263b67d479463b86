import { isJsonObject } from "../protocol/json.ts";
import type { ProblemCode } from "../protocol/problems.ts";

/** Failures of the client's own making, beside those that the server names (docs/errors.md). */
export type LocalCode =
  /** The client or the session handle was closed while something waited. */
  | "closed"
  /** The server could not be reached, or its answer was not ours. */
  | "unreachable"
  /** The agent answered a control request with an error; the message is the agent's. */
  | "agent_refused";

interface Failure {
  readonly code: ProblemCode | LocalCode | (string & {});
  readonly message: string;
  /** Whether trying the same again can help. */
  readonly retry: boolean;
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

/** Every failure of this client. Switch on `code`; a newer server may send codes that this version does not know. */
export class PatchbayError extends Error {
  readonly code: Failure["code"];
  readonly retry: boolean;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(failure: Failure, cause?: unknown) {
    super(failure.message, cause === undefined ? undefined : { cause });
    this.name = "PatchbayError";
    this.code = failure.code;
    this.retry = failure.retry;
    this.details = failure.details;
  }
}

export const closedError = (): PatchbayError =>
  new PatchbayError({ code: "closed", message: "The client was closed.", retry: false });

/** The failure that a problem body describes, or undefined when the value is not one. */
export function failureOf(body: unknown): PatchbayError | undefined {
  if (!isJsonObject(body)) return undefined;
  const { code, message, retry, details } = body;
  if (typeof code !== "string" || typeof message !== "string") return undefined;
  return new PatchbayError({
    code,
    message,
    retry: retry === true,
    details: isJsonObject(details) ? details : undefined,
  });
}
