import { createHmac } from "node:crypto";

/** The `patchbay-signature` of a delivery: an HMAC-SHA256 over `<timestamp>.<body>`, so that neither can be exchanged. */
export function sign(secret: string, timestampMs: number, body: string): string {
  return `v1=${createHmac("sha256", secret).update(`${timestampMs}.${body}`).digest("hex")}`;
}
