import { PassThrough } from "node:stream";
import fc from "fast-check";
import { expect, test } from "vitest";
import { clean, openTerminal, reveal } from "../../src/cli/terminal.ts";

/** A terminal whose two ends are in the test's hands; what is written is not looked at. */
function openPipe(isTTY: boolean) {
  const input: PassThrough & { isTTY?: boolean } = Object.assign(new PassThrough(), { isTTY });
  return { input, terminal: openTerminal({ input, output: process.stderr }) };
}

test("cleaned text has no control, direction or invisible character left; newlines and tabs stay", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      expect(clean(text).replaceAll(/[\n\t]/g, "")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
      expect(clean(text).replaceAll(/[^\n\t]/g, "")).toBe(text.replaceAll(/[^\n\t]/g, ""));
    }),
  );
  expect(reveal("rm\u202e -rf\u001b[2K")).toBe("rm\\u{202e} -rf\\u{1b}[2K");
});

test("a pipe's lines are kept for the questions that come; at its end there is no answer", async () => {
  const { input, terminal } = openPipe(false);
  input.end("one\ntwo\n");
  await terminal.ended;
  const { signal } = new AbortController();
  expect(await terminal.ask("", signal)).toBe("one");
  expect(await terminal.ask("", signal)).toBe("two");
  expect(await terminal.ask("", signal)).toBeUndefined();
});

test("a person's line that was typed before or just as the question appeared does not answer it", async () => {
  const { input, terminal } = openPipe(true);
  input.write("yes\n");
  await new Promise(setImmediate);
  const answer = terminal.ask("", new AbortController().signal);
  input.write("yes\n");
  await new Promise(setImmediate);
  input.end();
  expect(await answer).toBeUndefined();
});

test("a question that is withdrawn lets go of the line", async () => {
  const { input, terminal } = openPipe(false);
  const controller = new AbortController();
  const asked = terminal.ask("", controller.signal);
  controller.abort(new Error("elsewhere"));
  await expect(asked).rejects.toThrow("elsewhere");
  input.end("next\n");
  await terminal.ended;
  expect(await terminal.ask("", new AbortController().signal)).toBe("next");
});
