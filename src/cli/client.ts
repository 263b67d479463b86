import type { Command } from "commander";
import { type Client, type ConnectOptions, connect } from "../client/index.ts";
import { readConfiguration } from "../configuration.ts";
import { BROKER_DEFAULTS } from "../options.ts";
import { BrokerError } from "../protocol/problems.ts";

export interface ServerFlags {
  readonly url?: string;
  readonly token?: string;
  readonly tokenFile?: string;
}

/** Adds the flags that say which server, and as whom. */
export function withServerFlags(command: Command): Command {
  return command
    .option("--url <url>", `the server (PATCHBAY_URL; default http://${BROKER_DEFAULTS.host}:${BROKER_DEFAULTS.port})`)
    .option("--token <token>", "a key or token (PATCHBAY_TOKEN)")
    .option("--token-file <path>", "a file that holds it (PATCHBAY_TOKEN_FILE)");
}

/** A client of the server that flags and environment name. @throws BrokerError config_invalid */
export function openClient(
  flags: ServerFlags,
  options: Partial<ConnectOptions> = {},
): { readonly client: Client; readonly url: string } {
  const { url, token } = readConfiguration(process.env, { ...flags }).client;
  if (token === undefined) {
    throw new BrokerError(
      "config_invalid",
      "No token. Set PATCHBAY_TOKEN to a key, such as the one that the server showed at its first start.",
    );
  }
  const address = url ?? `http://${BROKER_DEFAULTS.host}:${BROKER_DEFAULTS.port}`;
  if (!/^https?:\/\//.test(address) || !URL.canParse(address)) {
    throw new BrokerError(
      "config_invalid",
      "PATCHBAY_URL: must be an address such as http://127.0.0.1:4400. Correct it and try again.",
    );
  }
  return { client: connect({ url: address, token, ...options }), url: new URL(address).origin };
}
