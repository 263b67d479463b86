import type { Rule } from "./rules.ts";
import { DEMO_BUG } from "./workspace.ts";

const keyword = (word: string): { regex: string; flags: string } => ({ regex: `\\b${word}\\b`, flags: "i" });

const HELP = `I am a scripted model: no account, no network, the same answers every time. \
The command line and everything between us is real, though. Type one of these words:

- **stream** – a longer text, so that you can watch it arrive (or interrupt it)
- **test** – run the tests; I need your permission, and one test fails
- **fix** – edit \`${DEMO_BUG.file}\`, with your permission
- **write** – write a new file \`NOTES.md\`, with your permission
- **ask** – ask you a question with two options
- **background** – start a slow command; you can go on typing, and I report when it ends
- **agent** – send a second agent to read the README in the background
- **busy** – pretend that the API is overloaded twice, and recover`;

const STORY = `Here is a longer text, sent in small pieces like a real answer.

Everything you read travels two trips. First the model's words go to the \`claude\` command line, which runs on the \
server and writes one JSON line for each piece. Then the broker gives each line a number, stores it, and sends it to \
every client that watches this session.

Because every line has a number, a client that loses its connection comes back with the last number it saw and gets \
what it missed: nothing twice, nothing left out. Try it: reload the page while this text arrives.

You can also interrupt. The command line then stops this very request, says so in the stream, and waits for your next \
message.

1. One writer talks to the command line.
2. One log keeps what it says.
3. Everybody else reads from that log, at their own pace.

That was it. Type **fix** to see a permission prompt.`;

const QUESTION = {
  question: "How should the cart show its amounts?",
  header: "Amounts",
  multiSelect: false,
  options: [
    { label: "Two decimals", description: "180.00, as on a bill" },
    { label: "Whole numbers", description: "180, as on a price tag" },
  ],
};

const AGENT_PROMPT = "Read README.md and say in one sentence what the project is about.";

const NOTES = `# Notes

Written by the scripted model, with your permission.
`;

const streaming: readonly Rule[] = [
  { text: keyword("stream"), reply: { text: STORY, chunkChars: 12, chunkDelayMs: 30 } },
];

const failingCommand: readonly Rule[] = [
  {
    text: keyword("test"),
    reply: [
      "I run the tests of this project.",
      { tool: "Bash", input: { command: "node --test", description: "Run the tests" } },
    ],
  },
  {
    text: keyword("test"),
    isError: true,
    result: { regex: "not ok|✖|fail|Exit code" },
    reply: `The command failed, and its output says why: 10 % off 200 should be 180, but \`total\` takes off 10 instead. \
Type **fix** and I correct \`${DEMO_BUG.file}\`.`,
  },
  { text: keyword("test"), isError: true, reply: "All right, no tests then. I did not run the command." },
  { text: keyword("test"), round: 1, reply: "All tests pass. If you fixed the bug: it worked." },
];

const edit: readonly Rule[] = [
  {
    text: keyword("fix"),
    reply: ["I look at the code first.", { tool: "Read", input: { file_path: `{{cwd}}/${DEMO_BUG.file}` } }],
  },
  {
    text: keyword("fix"),
    round: 1,
    tool: "Read",
    isError: false,
    reply: [
      "There it is: a percentage is subtracted as if it were an amount.",
      {
        tool: "Edit",
        input: { file_path: `{{cwd}}/${DEMO_BUG.file}`, old_string: DEMO_BUG.wrong, new_string: DEMO_BUG.right },
      },
    ],
  },
  { text: keyword("fix"), tool: "Read", isError: true, reply: `I cannot find \`${DEMO_BUG.file}\` in this workspace.` },
  {
    text: keyword("fix"),
    tool: "Edit",
    isError: true,
    result: "String to replace not found",
    reply: "The bug is gone already. Type **test** to see the tests pass.",
  },
  { text: keyword("fix"), tool: "Edit", isError: true, reply: "All right, I leave the file as it is." },
  { text: keyword("fix"), tool: "Edit", reply: "Fixed. Type **test** to see the tests pass." },
];

const write: readonly Rule[] = [
  {
    text: keyword("write"),
    reply: ["I write a short note.", { tool: "Write", input: { file_path: "{{cwd}}/NOTES.md", content: NOTES } }],
  },
  { text: keyword("write"), isError: true, reply: "All right, no note was written." },
  { text: keyword("write"), tool: "Write", reply: "Done: the note is in `NOTES.md`." },
];

const question: readonly Rule[] = [
  {
    text: keyword("ask"),
    reply: ["One thing I should know first.", { tool: "AskUserQuestion", input: { questions: [QUESTION] } }],
  },
  {
    text: keyword("ask"),
    isError: false,
    result: { regex: '"[^"]*"="([^"]*)"' },
    reply: "**{{result.1}}** it is. I would change the cart accordingly.",
  },
  { text: keyword("ask"), round: 1, reply: "No answer? Then I decide: two decimals." },
];

const background: readonly Rule[] = [
  { text: keyword("background"), notification: true, reply: "The background task has reported back: {{notification}}" },
  {
    text: keyword("background"),
    reply: [
      "I start a slow command in the background.",
      {
        tool: "Bash",
        input: { command: "sleep 5; echo finished", description: "Wait five seconds", run_in_background: true },
      },
    ],
  },
  { text: keyword("background"), isError: true, reply: "All right, I did not start it." },
  { text: keyword("background"), round: 1, reply: "It runs. Go on typing; I tell you when it has ended." },
];

const agent: readonly Rule[] = [
  { scope: "subagent", text: AGENT_PROMPT, reply: { tool: "Read", input: { file_path: "{{cwd}}/README.md" } } },
  {
    scope: "subagent",
    text: AGENT_PROMPT,
    round: 1,
    reply: [{ pauseMs: 2000 }, "It adds up a shopping cart, and its discount is wrong."],
  },
  { text: keyword("agent"), notification: true, reply: "The agent has reported back: {{notification}}" },
  {
    text: keyword("agent"),
    reply: [
      "I send an agent to read the README.",
      {
        tool: "Agent",
        input: {
          description: "Read the README",
          prompt: AGENT_PROMPT,
          subagent_type: "general-purpose",
          run_in_background: true,
        },
      },
    ],
  },
  { text: keyword("agent"), isError: true, reply: "The agent could not be started." },
  { text: keyword("agent"), round: 1, reply: "The agent is on its way. Go on typing; I tell you what it says." },
];

const errors: readonly Rule[] = [
  { text: keyword("busy"), times: 2, reply: { status: 529, message: "Overloaded (as the script says)" } },
  { text: keyword("busy"), reply: "The API was overloaded twice, and the command line tried again by itself." },
];

/** The script of `npm run demo`: one word for each thing that a session can show, and help for anything else. */
export const demoScript: readonly Rule[] = [
  ...agent.filter((rule) => rule.scope === "subagent"),
  ...streaming,
  ...failingCommand,
  ...edit,
  ...write,
  ...question,
  ...background,
  ...agent.filter((rule) => rule.scope !== "subagent"),
  ...errors,
  { reply: { text: HELP, chunkDelayMs: 15 } },
];
