import { BrokerError } from "../../protocol/problems.ts";
import { type Call, type Route, sessionOf } from "../context.ts";

/** Parts of the contract that later versions serve: said so, to those who may see the session. @throws BrokerError not_available */
async function refuse(call: Call): Promise<never> {
  await sessionOf(call);
  throw new BrokerError("not_available", "This version does not serve this route yet. Do without it.");
}

export const LATER_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/sessions/:id/fork", access: "drive", handle: refuse },
];
