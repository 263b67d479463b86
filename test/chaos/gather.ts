import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ADMIN_KEY } from "../kit/server.ts";
import { type Journal, type JournalRecord, type Sight, sightOf } from "./history.ts";
import { arrayItems, isJsonObject, word } from "./json.ts";

/** The whole log of a session as its server has it now. */
export async function readLog(url: string, id: string): Promise<Sight[]> {
  const sights: Sight[] = [];
  for (let after = 0; ; ) {
    const response = await fetch(`${url}/v1/sessions/${id}/events?after=${after}&limit=500`, {
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`the log of ${id} cannot be read: ${text.slice(0, 300)}`);
    const items = arrayItems(text, "events");
    for (const item of items) sights.push(sightOf(item));
    const last = sights.at(-1)?.seq ?? 0;
    if (items.length === 0 || last === after) return sights;
    after = last;
  }
}

/** What the agents of a session wrote down of themselves. */
export function readJournals(folder: string, id: string): Journal[] {
  const names = readdirSync(folder).filter((name) => name.startsWith(`${id}.`));
  return names.flatMap((name) => {
    // The last line of a process that was killed may be cut off.
    const records = readFileSync(join(folder, name), "utf8").split("\n").slice(0, -1).map(parse);
    const [first, ...rest] = records;
    if (first === undefined) return [];
    const others: unknown = first["others"];
    return [
      {
        pid: Number(name.split(".").at(-2)),
        runner: Number(first["runner"]),
        startedAt: Number(first["at"]),
        others: Array.isArray(others) ? others.map(Number) : [],
        records: rest.flatMap(recordOf),
      },
    ];
  });
}

function parse(line: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(line);
  return isJsonObject(value) ? value : {};
}

function recordOf(value: Readonly<Record<string, unknown>>): JournalRecord[] {
  const { dir } = value;
  if (dir !== "in" && dir !== "out" && dir !== "took") return [];
  const uuid = word(value, "uuid");
  const requestId = word(value, "request_id");
  return [
    {
      at: Number(value["at"]),
      dir,
      type: word(value, "type"),
      body: word(value, "body"),
      ...(uuid !== "" && { uuid }),
      ...(requestId !== "" && { request_id: requestId }),
    },
  ];
}
