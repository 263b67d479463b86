import { createHash, timingSafeEqual } from "node:crypto";
import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import { PROTOCOL_VERSIONS } from "./frames.ts";

/** Why a runner does not take a server. None of these is helped by trying again. */
export type RefusalCode = "version_unsupported" | "secret_wrong" | "stale_owner" | "hello_malformed";

export interface Refusal {
  readonly code: RefusalCode;
  readonly message: string;
  readonly details?: JsonObject;
}

export interface Hello {
  readonly version: number;
  readonly epoch: number;
  readonly broker: string;
}

/** The server that has owned a runner before: its epochs are compared with its own only. */
export interface FormerOwner {
  readonly epoch: number;
  readonly broker: string;
}

/** How a server introduces itself. `broker` is its data directory's own name: epochs of two of them say nothing of each other. */
export function helloOf({ epoch, broker }: FormerOwner, secret: string | undefined): JsonObject {
  return { versions: PROTOCOL_VERSIONS, epoch, broker, ...(secret !== undefined && { secret }) };
}

/** Whether this server may own the runner. `former` has the highest epoch that owned it so far. */
export function judgeHello(json: JsonObject, secret: string | undefined, former: FormerOwner): Hello | Refusal {
  const { versions, epoch, broker } = json;
  // The secret first: who does not know it learns nothing else.
  if (secret !== undefined && !isSame(json["secret"], secret)) {
    return { code: "secret_wrong", message: "The secret is not the one in the runner's folder." };
  }
  if (!isRange(versions)) return { code: "hello_malformed", message: "versions is not a range {min, max}." };
  const version = Math.min(versions.max, PROTOCOL_VERSIONS.max);
  if (version < Math.max(versions.min, PROTOCOL_VERSIONS.min)) return noCommonVersion(versions);
  if (typeof epoch !== "number" || !Number.isSafeInteger(epoch) || epoch < 0) {
    return { code: "hello_malformed", message: "epoch is not a whole number." };
  }
  if (typeof broker !== "string") return { code: "hello_malformed", message: "broker is not a text." };
  if (broker === former.broker && epoch < former.epoch) {
    const message = `A server of epoch ${former.epoch} owns this runner; epoch ${epoch} is over.`;
    return { code: "stale_owner", message, details: { epoch, owner: former.epoch } };
  }
  return { version, epoch, broker };
}

export function isRefusal(judged: Hello | Refusal): judged is Refusal {
  return "code" in judged;
}

interface VersionRange {
  readonly min: number;
  readonly max: number;
}

function isRange(value: unknown): value is VersionRange & JsonObject {
  return isJsonObject(value) && Number.isSafeInteger(value["min"]) && Number.isSafeInteger(value["max"]);
}

function noCommonVersion(server: VersionRange): Refusal {
  const { min, max } = PROTOCOL_VERSIONS;
  return {
    code: "version_unsupported",
    message: `The server speaks versions ${server.min} to ${server.max} of the runner's protocol, the runner ${min} to ${max}. Update the older one.`,
    details: { server: { min: server.min, max: server.max }, runner: { min, max } },
  };
}

/** In constant time, whatever the length. */
function isSame(given: unknown, secret: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(typeof given === "string" ? given : ""), digest(secret)) && given === secret;
}
