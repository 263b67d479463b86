import { Command } from "commander";
import { isJsonObject, stringField } from "../protocol/json.ts";
import { openClient, type ServerFlags, withServerFlags } from "./client.ts";
import { printTable } from "./table.ts";

interface CreateFlags extends ServerFlags {
  readonly name?: string;
  readonly role?: string[];
  readonly tenant?: string;
  readonly session?: string;
  readonly expiresInDays?: string;
}

const DAY_MS = 86_400_000;

function expiry(days: string | undefined): { expires_at_ms: number } | undefined {
  return days === undefined ? undefined : { expires_at_ms: Date.now() + Math.round(Number(days) * DAY_MS) };
}

function createCommand(): Command {
  const command = new Command("create")
    .description("make a key; it is shown once")
    .option("--name <name>", "what it is for")
    .option("--role <role...>", "viewer, approver, driver, admin, operator, runner (default: driver and approver)")
    .option("--tenant <tenant>", "whose it is (default: yours; others' are for operators, and new ones are made)")
    .option("--session <id>", "narrow it to one session")
    .option("--expires-in-days <days>", "when it ends (default: never)", /^\d+(\.\d+)?$/);
  return withServerFlags(command).action(async (flags: CreateFlags) => {
    const { name, role, tenant, session, expiresInDays } = flags;
    const body = {
      ...(name !== undefined && { name }),
      ...(role !== undefined && { roles: role }),
      ...(tenant !== undefined && { tenant }),
      ...(session !== undefined && { session_id: session }),
      ...expiry(expiresInDays),
    };
    const made = await openClient(flags).client.http("POST", "/v1/keys", { body });
    console.log(stringField(made, "key") ?? "");
    console.error(`Key ${stringField(made, "id")}: keep it now, it is not shown again.`);
  });
}

const date = (value: unknown): string => (typeof value === "number" ? new Date(value).toISOString() : "");

function listCommand(): Command {
  const command = new Command("list")
    .description("list keys (the default)")
    .option("--json", "one JSON object per line");
  return withServerFlags(command).action(async (flags: ServerFlags & { json?: boolean }) => {
    const body = await openClient(flags).client.http("GET", "/v1/keys");
    const keys = isJsonObject(body) && Array.isArray(body["keys"]) ? body["keys"].filter(isJsonObject) : [];
    if (flags.json === true) {
      for (const key of keys) console.log(JSON.stringify(key));
      return;
    }
    const rows = keys.map((key) => [
      stringField(key, "id") ?? "",
      Array.isArray(key["roles"]) ? key["roles"].join(",") : "",
      stringField(key, "tenant") ?? "",
      stringField(key, "session_id") ?? "",
      date(key["created_at_ms"]),
      typeof key["revoked_at_ms"] === "number" ? "revoked" : date(key["expires_at_ms"]),
      stringField(key, "name") ?? "",
    ]);
    printTable(["ID", "ROLES", "TENANT", "SESSION", "CREATED", "ENDS", "NAME"], rows);
  });
}

function revokeCommand(): Command {
  const command = new Command("revoke")
    .description("end a key, its tickets and its connections")
    .argument("<id>", "the key's id");
  return withServerFlags(command).action(async (id: string, flags: ServerFlags) => {
    await openClient(flags).client.http("DELETE", `/v1/keys/${encodeURIComponent(id)}`);
    console.log(`revoked ${id}`);
  });
}

/** `patchbay keys [list | create | revoke <id>]` */
export function keysCommand(): Command {
  return new Command("keys")
    .description("create, list or revoke keys")
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(createCommand())
    .addCommand(revokeCommand());
}
