import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { Rule } from "../../src/demo/rules.ts";
import { forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";

const script: readonly Rule[] = [
  {
    text: "work",
    reply: { tool: "Bash", input: { command: "echo $$ >> up; until [ -e go ]; do sleep 0.1; done; echo went" } },
  },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "done" },
];

forEachVersion(script, (e2e) => {
  verifies(
    "P3-MESSAGE-ONCE",
    "on_crash continue: SIGKILL in mid-tool, and the next process runs the same turn again to its end; what was queued follows",
    async () => {
      using watched = await e2e().session({ on_crash: "continue" });
      watched.allowAll();
      await watched.send("say before");
      const sent = watched.send("work");
      await watched.file("up");
      const queued = watched.send("say queued");
      await queued.accepted;
      process.kill(watched.pid(), "SIGKILL");
      await watched.first("second process", () => watched.all("agent.started").length === 2);
      writeFileSync(join(watched.folder, "go"), "");
      expect(await sent).toMatchObject({ outcome: "completed" });
      expect(await queued).toMatchObject({ outcome: "completed", text: "queued" });
      expect(watched.all("turn.failed")).toEqual([]);
      expect(watched.ends().filter(([turnId]) => turnId === sent.turnId)).toHaveLength(1);
      // The conversation has the message once, and the command that was cut off is told to the model as such, or is run again.
      const last = e2e().turnsOf(watched).at(-1)?.conversation.userTexts ?? [];
      expect(last.filter((text) => text.trim() === "work")).toHaveLength(1);
    },
  );
});
