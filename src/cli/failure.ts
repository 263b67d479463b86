import { PatchbayError } from "../client/index.ts";
import { BrokerError } from "../protocol/problems.ts";

/** One plain line about what went wrong; a stack only where the fault is ours. */
export function failureLine(error: unknown): string {
  if (error instanceof BrokerError) return `patchbay: ${error.message}`;
  if (error instanceof PatchbayError) {
    const hint = error.code === "unreachable" ? " Is the server running, and is PATCHBAY_URL right?" : "";
    return `patchbay: ${error.message}${hint}`;
  }
  return `patchbay: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
}
