import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { IncomingRequest, SessionInput } from "../../src/client/index.ts";
import type { Rule } from "../../src/demo/rules.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { postAnswer, requestOf, resolutionOf, setPolicy, WAYS } from "../kit/answering.ts";
import { forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import { isGone, type Watched } from "../kit/watched-session.ts";

const FORM_SERVER = fileURLToPath(import.meta.resolve("../kit/elicitation-server.mjs"));
const QUESTION = {
  question: "Which colour?",
  header: "Colour",
  multiSelect: false,
  options: [
    { label: "Red", description: "warm" },
    { label: "Blue", description: "cold" },
  ],
};

const script: readonly Rule[] = [
  { text: "touch", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: "write", reply: { tool: "Write", input: { file_path: "{{cwd}}/made.txt", content: "by Write" } } },
  { text: "edit", reply: { tool: "Read", input: { file_path: "{{cwd}}/notes.txt" } } },
  {
    text: "edit",
    round: 1,
    reply: { tool: "Edit", input: { file_path: "{{cwd}}/notes.txt", old_string: "old", new_string: "new" } },
  },
  { text: "edit", round: 2, reply: "so: {{result}}" },
  { text: "ask", reply: { tool: "AskUserQuestion", input: { questions: [QUESTION] } } },
  { text: "plan", reply: { tool: "ExitPlanMode", input: { plan: "1. look 2. leap" } } },
  { text: "form", reply: { tool: "mcp__form__ask", input: {} } },
  { text: { regex: "^(touch|write|ask|plan|form)" }, round: 1, reply: "so: {{result}}" },
  { round: "any", reply: "fine" },
];

/** One kind of request: how to bring it about, and what yes and no do. */
interface Asked {
  readonly name: string;
  readonly text: string;
  readonly kind: IncomingRequest["kind"];
  readonly input?: SessionInput;
  /** Before each turn. */
  prepare?(watched: Watched): unknown;
  readonly shown: JsonObject;
  yes(request: IncomingRequest): JsonObject;
  readonly no: JsonObject;
  /** What the model says after a yes and a no, and after the policy's own no. */
  readonly said: { readonly yes: RegExp; readonly no: RegExp; readonly expired: RegExp };
  /** True when what was asked for has happened. */
  done?(watched: Watched): boolean;
}

const allow = ({ input }: IncomingRequest): JsonObject => ({ behavior: "allow", updatedInput: input });
const DENY = { behavior: "deny", message: "not on a Friday" };
const DENIED = { no: /not on a Friday/, expired: /Nobody answered/ };
const notes = (watched: Watched): string => join(watched.folder, "notes.txt");

const KINDS: readonly Asked[] = [
  {
    name: "Bash",
    text: "touch",
    kind: "permission",
    shown: { tool_name: "Bash", input: { command: "touch made.txt" } },
    yes: allow,
    no: DENY,
    said: { yes: /^so:/, ...DENIED },
    prepare: ({ folder }) => rmSync(join(folder, "made.txt"), { force: true }),
    done: ({ folder }) => existsSync(join(folder, "made.txt")),
  },
  {
    name: "Write",
    text: "write",
    kind: "permission",
    shown: { tool_name: "Write", input: { content: "by Write" } },
    yes: allow,
    no: DENY,
    said: { yes: /created|written|updated/i, ...DENIED },
    prepare: ({ folder }) => rmSync(join(folder, "made.txt"), { force: true }),
    done: ({ folder }) => existsSync(join(folder, "made.txt")),
  },
  {
    name: "Edit",
    text: "edit",
    kind: "permission",
    prepare: (watched) => writeFileSync(notes(watched), "old words\n"),
    shown: { tool_name: "Edit", input: { old_string: "old", new_string: "new" } },
    yes: allow,
    no: DENY,
    said: { yes: /updated/i, ...DENIED },
    done: (watched) => readFileSync(notes(watched), "utf8") === "new words\n",
  },
  {
    name: "AskUserQuestion",
    text: "ask",
    kind: "question",
    shown: { tool_name: "AskUserQuestion", input: { questions: [{ question: "Which colour?" }] } },
    yes: ({ input }) => ({ behavior: "allow", updatedInput: { ...input, answers: { "Which colour?": "Blue" } } }),
    no: DENY,
    said: { yes: /"Which colour\?"="Blue"/, ...DENIED },
  },
  {
    name: "ExitPlanMode",
    text: "plan",
    kind: "plan",
    input: { agent: { permission_mode: "plan" } },
    prepare: (watched) => watched.session.setPermissionMode("plan"),
    shown: { tool_name: "ExitPlanMode" },
    yes: allow,
    no: DENY,
    said: { yes: /approved/i, ...DENIED },
  },
  {
    name: "elicitation",
    text: "form",
    kind: "elicitation",
    input: {
      agent: { mcp_servers: { form: { command: process.execPath, args: [FORM_SERVER], alwaysLoad: true } } },
    },
    shown: { subtype: "elicitation", mcp_server_name: "form", message: "What is your name?", mode: "form" },
    yes: () => ({ action: "accept", content: { name: "Ada" } }),
    no: { action: "decline" },
    said: { yes: /"name":"Ada"/, no: /"action":"decline"/, expired: /"action":"decline"/ },
  },
];

forEachVersion(script, (e2e) => {
  for (const asked of KINDS) {
    const { kind } = asked;
    /** Starts a turn and waits for its question. */
    const ask = async (watched: Watched) => {
      await asked.prepare?.(watched);
      const sent = watched.send(asked.text);
      const request = await requestOf(watched, kind);
      expect(request).toMatchObject({ turn_id: sent.turnId, request: asked.shown });
      expect(asked.done?.(watched) ?? false).toBe(false);
      return { sent, request };
    };

    verifies("P6-ONE-ANSWER", `${asked.name} is denied and answered, over WebSocket and over plain HTTP`, async () => {
      using watched = await e2e().session(asked.input);
      for (const way of WAYS) {
        const denied = await ask(watched);
        await way.answer(e2e(), watched, denied.request, asked.no);
        expect(await denied.sent).toMatchObject({ outcome: "completed", text: expect.stringMatching(asked.said.no) });
        const answered = await ask(watched);
        await way.answer(e2e(), watched, answered.request, asked.yes(answered.request));
        expect(await answered.sent).toMatchObject({
          outcome: "completed",
          text: expect.stringMatching(asked.said.yes),
        });
        expect(asked.done?.(watched) ?? true).toBe(true);
        for (const { request } of [denied, answered]) {
          expect(await resolutionOf(watched, request)).toMatchObject({ outcome: "answered", decided_by: "e2eadmin" });
        }
      }
    });

    verifies(
      "REQUEST-SETTLED",
      `${asked.name} is cancelled by an interrupt, expired by policy, lost by SIGKILL`,
      async () => {
        using watched = await e2e().session(asked.input);
        for (const way of WAYS) {
          const { sent, request } = await ask(watched);
          await way.interrupt(e2e(), watched);
          expect(await sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
          expect(await resolutionOf(watched, request)).toEqual({
            request_id: request.request_id,
            outcome: "cancelled",
          });
          expect(await postAnswer(e2e(), watched, request, asked.yes(request))).toMatchObject({
            body: { error: { code: "request_settled" } },
          });
        }
        await setPolicy(e2e(), watched, { expire: { after_s: 1, effect: "deny" } });
        const due = await ask(watched);
        expect(due.request.expires_at_ms).toBe(due.request.opened_at_ms + 1000);
        expect(await due.sent).toMatchObject({ outcome: "completed", text: expect.stringMatching(asked.said.expired) });
        expect(await resolutionOf(watched, due.request)).toMatchObject({
          outcome: "expired",
          decided_by: "policy:expiry",
        });
        expect(await due.request.respond(asked.yes(due.request))).toMatchObject({ outcome: "settled" });
        await setPolicy(e2e(), watched, {});
        const { sent, request } = await ask(watched);
        const pid = watched.pid();
        process.kill(pid, "SIGKILL");
        expect(await sent).toMatchObject({ outcome: "failed", reason: "agent_exited" });
        expect(await isGone(pid)).toBe(true);
        expect(await resolutionOf(watched, request)).toEqual({ request_id: request.request_id, outcome: "lost" });
        expect(await postAnswer(e2e(), watched, request, asked.yes(request))).toMatchObject({
          body: { error: { code: "request_settled" } },
        });
        expect(asked.done?.(watched) ?? false).toBe(false);
      },
    );
  }
});
