import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { ADMIN_KEY, forEachVersion, startE2e } from "../kit/e2e-broker.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";
import { connect } from "../kit/ws-client.ts";

const FLOOD_BYTES = 1_000_000;
const ODD = "\u2028\u2029\u0085\u0000 \r\n 🦊 \ufeff \\u0041 </script>";

const script: readonly Rule[] = [
  { text: { regex: "^flood" }, reply: { fillBytes: FLOOD_BYTES } },
  { text: { regex: "^odd" }, times: 1, reply: { status: 529 } },
  { text: { regex: "^odd" }, reply: { text: ODD, chunkChars: 2 } },
  { text: { regex: "^(say|big) (\\w+)" }, reply: "$2" },
];

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** Text of exactly so many bytes of UTF-8, different everywhere, with characters of one to four bytes. */
function longText(bytes: number): string {
  const pieces = ["big text "];
  let size = 9;
  for (let number = 0; size < bytes - 40; number++) {
    const piece = `${number} ä€𝄞 "\\" `;
    pieces.push(piece);
    size += Buffer.byteLength(piece);
  }
  return `${pieces.join("")}${"x".repeat(bytes - size - 3)}end`;
}

const MEGABYTE = 1024 * 1024;
/** The newer version answers longer texts itself: "Prompt is too long". */
const LARGEST_BYTES = { "2.1.197": 5 * MEGABYTE, "2.1.332": 2 * MEGABYTE } as const;

forEachVersion(script, (e2e, version) => {
  const bytes = LARGEST_BYTES[version];

  test(`known bug 12: a text of ${bytes} bytes is intact at the model`, async () => {
    using watched = await e2e().session();
    const text = longText(bytes);
    expect(Buffer.byteLength(text)).toBe(bytes);
    expect(await watched.send(text)).toMatchObject({ outcome: "completed", text: "text" });
    expect(
      e2e()
        .turnsOf(watched)
        .map(({ conversation }) => sha256(conversation.text)),
    ).toEqual([sha256(text)]);
    const query = watched.events.find(({ origin }) => origin === "USER_EVENT");
    expect(sha256(String(fieldOf(fieldOf(query?.payload, "message"), "content")))).toBe(sha256(text));
  });

  if (version === "2.1.332") {
    test("a text of 5 MiB is intact on stdin, and the CLI's refusal is delivered", async () => {
      using watched = await e2e().session();
      const text = longText(5 * MEGABYTE);
      const sent = watched.send(text);
      const refusal = { outcome: "failed", reason: "api_error", text: expect.stringContaining("too long") };
      expect(await sent).toMatchObject(refusal);
      const echo = watched.lines("user").find((event) => fieldOf(event.payload, "isReplay") === true);
      expect(echo?.echo_of).toBe((await sent.accepted).seq);
      expect(sha256(String(fieldOf(fieldOf(echo?.payload, "message"), "content")))).toBe(sha256(text));
      expect(watched.all("turn.failed")).toHaveLength(1);
    });
  }
});

for (const { version, path } of CLI_VERSIONS) {
  verifies(
    "P4-BYTES",
    `every line that ${version} wrote comes out as it was, in order, also one of a megabyte`,
    async () => {
      using folder = makeTempDir();
      const written = join(folder.path, "stdout");
      const recorder = join(folder.path, "claude");
      writeFileSync(recorder, `#!/bin/sh\n"${path}" "$@" | tee -a "${written}"\n`, { mode: 0o755 });
      await using e2e = await startE2e({ version, path: recorder }, script);
      using watched = await e2e.session();
      using socket = await connect(e2e.url, { headers: { authorization: `Bearer ${ADMIN_KEY}` } });
      socket.send({ type: "subscribe", session_id: watched.session.id });
      await socket.next("subscribed");
      expect((await watched.send("flood")).text).toHaveLength(FLOOD_BYTES);
      const odd = watched.send("odd");
      expect((await odd).text).toBe(ODD);
      await watched.session.control({ subtype: "end_session" });
      await socket.next("event", ({ event_type }) => event_type === "agent.exited");
      const payloads = socket.received
        .filter(({ frame }) => frame.type === "event" && frame.source === "agent")
        .map(({ text }) => /"payload":(.*)\}$/s.exec(text)?.[1]);
      const lines = readFileSync(written, "utf8").split("\n");
      // The CLI's own transcript, which the server asks for, is for the store alone.
      const isShown = (line: string): boolean =>
        line.startsWith("{") && fieldOf(JSON.parse(line), "type") !== "transcript_mirror";
      expect(payloads).toEqual(lines.filter(isShown));
    },
  );
}
