import { Command } from "commander";
import { openClient, type ServerFlags, withServerFlags } from "./client.ts";

/** Contract 1: a console URL lives 15 minutes. */
const TICKET_S = 900;

/** `patchbay open`: prints a console URL for a person to click, with the rights of the token. */
export function openCommand(): Command {
  const command = new Command("open")
    .description("print a console URL; the ticket in it works once, within 15 minutes")
    .option("--session <id>", "open this session");
  return withServerFlags(command).action(async (flags: ServerFlags & { session?: string }) => {
    const { client, url } = openClient(flags);
    const { ticket } = await client.createTicket({ ttl_s: TICKET_S });
    const address = new URL("/", url);
    address.searchParams.set("ticket", ticket);
    if (flags.session !== undefined) address.searchParams.set("session", flags.session);
    console.log(address.href);
  });
}
