import { Command } from "commander";
import type { SessionView } from "../client/index.ts";
import { openClient, type ServerFlags, withServerFlags } from "./client.ts";
import { printTable } from "./table.ts";

const row = (view: SessionView): readonly string[] => [
  view.id,
  view.state,
  String(view.open_requests.length),
  `$${view.usage.cost_usd.toFixed(4)}`,
  new Date(view.updated_at_ms).toISOString(),
  view.name ?? "",
];

function listCommand(): Command {
  const command = new Command("list")
    .description("list sessions (the default)")
    .option("--state <state>", "only those in this state")
    .option("--json", "one JSON object per line");
  return withServerFlags(command).action(
    async (flags: ServerFlags & { state?: SessionView["state"]; json?: boolean }) => {
      const { client } = openClient(flags);
      const all: SessionView[] = [];
      let cursor: string | undefined;
      do {
        const query = {
          ...(flags.state !== undefined && { state: flags.state }),
          ...(cursor !== undefined && { cursor }),
        };
        const page = await client.sessions.list(query);
        all.push(...page.sessions);
        cursor = page.next;
      } while (cursor !== undefined);
      if (flags.json === true) for (const view of all) console.log(JSON.stringify(view));
      else printTable(["ID", "STATE", "ASKS", "COST", "UPDATED", "NAME"], all.map(row));
    },
  );
}

function oneCommand(
  name: string,
  description: string,
  act: (id: string, flags: ServerFlags) => Promise<void>,
): Command {
  return withServerFlags(new Command(name).description(description).argument("<id>", "the session")).action(act);
}

/** `patchbay sessions [list | end <id> | purge <id>]` */
export function sessionsCommand(): Command {
  return new Command("sessions")
    .description("list, end or purge sessions")
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(
      oneCommand("end", "end the agent; the session stays readable", async (id, flags) => {
        await openClient(flags).client.sessions.end(id);
        console.log(`ended ${id}`);
      }),
    )
    .addCommand(
      oneCommand("purge", "end it and remove its log, transcript and own folder for good", async (id, flags) => {
        await openClient(flags).client.sessions.purge(id);
        console.log(`purged ${id}`);
      }),
    );
}
