/**
 * Follows a session and remembers how far it came: stopped and started again, it goes on where it was and misses nothing.
 *
 *     PATCHBAY_URL=http://127.0.0.1:4400 PATCHBAY_TOKEN=<key> node examples/follow.ts <session id> <file that holds the cursor>
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
// In a program of your own: from "patchbay/client".
import { connect } from "../src/client/index.ts";

const { PATCHBAY_URL: url = "http://127.0.0.1:4400", PATCHBAY_TOKEN: token = "" } = process.env;
const [, , id = "", cursorFile = "cursor.txt"] = process.argv;

const client = connect({ url, token });
const after = existsSync(cursorFile) ? Number(readFileSync(cursorFile, "utf8")) : 0;
// Without previews every event is durable, so its number can be kept.
for await (const event of client.session(id).events({ after, previews: false })) {
  if (event.origin === "AGENT_EVENT" && event.event_type === "assistant") {
    for (const block of event.payload.message.content) {
      if (block.type === "text") console.log(`${event.seq} says: ${block.text}`);
      if (block.type === "tool_use") console.log(`${event.seq} uses ${block.name}`);
    }
  } else if (event.origin === "SYSTEM_EVENT" && event.event_type === "turn.completed") {
    console.log(`${event.seq} turn ended: ${event.payload.stop_reason}`);
  }
  writeFileSync(cursorFile, String(event.seq));
}
client.close();
