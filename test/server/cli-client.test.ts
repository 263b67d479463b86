import { expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import { ADMIN_KEY, startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { runCli, startCli } from "./cli-process.ts";

const envOf = (server: TestServer) => ({ PATCHBAY_URL: server.url, PATCHBAY_TOKEN: ADMIN_KEY });

verifies("CLI-RUN", "streams the text, exits 0 when the turn completed, 1 when it did not", async () => {
  await using server = await startServer();
  const env = envOf(server);
  const good = await runCli(["run", "hello there"], { env });
  expect(good.stdout).toMatch(/^session ses_\S+\necho: hello there\n/);
  expect(good.stdout.match(/echo: hello there/g)).toHaveLength(1);
  expect(good.code).toBe(0);
  const bad = await runCli(["run", "!die 3"], { env });
  expect(bad.code).toBe(1);
  expect(bad.stdout).toContain("Turn failed: agent_exited");
  expect((await runCli(["run", "!error"], { env })).code).toBe(1);
});

verifies(
  "CLI-RUN",
  "asks with the exact command; only a whole yes allows, empty lines ask again, the end of input refuses",
  async () => {
    await using server = await startServer();
    const env = envOf(server);
    const allowed = await runCli(["run", "!ask"], { env, stdin: "\n  \ny\nyes please\nyes\n" });
    expect(allowed.stdout).toContain("asks for permission:\n    ");
    expect(allowed.stdout.match(/allow\? /g)).toHaveLength(5);
    expect(allowed.stdout).toContain('"behavior":"allow"');
    const refused = await runCli(["run", "!ask"], { env, stdin: "no not today\n" });
    expect(refused.stdout).toContain('"message":"not today"');
    const nobody = await runCli(["run", "!ask"], { env, stdin: "\n" });
    expect(nobody.stdout).toContain("Nobody is here to answer, so it is refused.");
    expect(nobody.stdout).not.toContain('"behavior":"allow"');
  },
);

verifies("CLI-RUN", "asks questions with numbered options and takes words of one's own", async () => {
  await using server = await startServer();
  const env = envOf(server);
  const byNumber = await runCli(["run", "!question"], { env, stdin: "\n9\n1\n" });
  expect(byNumber.stdout).toMatch(/ {2}1\. /);
  expect(byNumber.stdout.match(/answer \(/g)).toHaveLength(3);
  const byWords = await runCli(["run", "!question"], { env, stdin: "something else\n" });
  expect(byWords.stdout).toContain("something else");
});

verifies("CLI-RUN", "what the agent says cannot drive the terminal", async () => {
  await using server = await startServer();
  const end = await runCli(["run", "a\u001b]0;title\u0007b\u009b31m\rc\u202ed"], { env: envOf(server) });
  expect(end.stdout).toContain("echo: a]0;titleb31mcd\n");
  expect(end.stdout.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});

test("--json prints envelopes only; a session is gone on with, and ended", async () => {
  await using server = await startServer();
  const env = envOf(server);
  const { id } = await server.session({});
  const end = await runCli(["run", "--json", "--end", "--session", id, "hi"], { env });
  const types = end.stdout
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { event_type: string }).event_type);
  expect(types).toContain("query");
  expect(types.at(-1)).toBe("turn.completed");
  expect((await server.call("GET", `/v1/sessions/${id}`)).body.state).toBe("ended");
});

test("attach shows what was, sends lines, and leaves a request open at the end of input", async () => {
  await using server = await startServer();
  const env = envOf(server);
  const client = connect({ url: server.url, token: ADMIN_KEY });
  const session = await client.createSession();
  await session.send("first");
  await using attached = startCli(["attach", session.id], { env });
  await attached.line(/^> first$/);
  await attached.line(/^echo: first$/);
  attached.type("second\n");
  await attached.line(/^echo: second$/);
  const asked = session.send("!ask");
  await attached.line(/asks for permission/);
  const open = (await session.view()).open_requests;
  expect(open).toHaveLength(1);
  session.onRequest((request) => request.deny("elsewhere"));
  await attached.line(/resolved elsewhere/);
  await asked;
  attached.signal("SIGINT");
  await attached.line(/Interrupting/);
  attached.signal("SIGINT");
  expect((await attached.ended).code).toBe(0);
  client.close();
});

test("Ctrl+C in a run interrupts the turn", async () => {
  await using server = await startServer();
  await using run = startCli(["run", "!stream 100000 10 5"], { env: envOf(server) });
  await run.line(/^session/);
  const client = connect({ url: server.url, token: ADMIN_KEY });
  for await (const view of client.watch()) if (view.state === "running") break;
  run.signal("SIGINT");
  await run.line(/Interrupting/);
  expect((await run.ended).code).toBe(1);
  client.close();
});

test("sessions, keys and open", async () => {
  await using server = await startServer();
  const env = envOf(server);
  const { id } = await server.session({ name: "a\u001b[31mb" });
  expect((await runCli(["sessions"], { env })).stdout).toMatch(new RegExp(`^ID .*\\n${id} .* a\\[31mb\\n$`));
  const listed = (await runCli(["sessions", "list", "--json"], { env })).stdout;
  expect(JSON.parse(listed)).toMatchObject({ id });
  expect((await runCli(["sessions", "end", id], { env })).stdout).toBe(`ended ${id}\n`);
  expect((await runCli(["sessions", "purge", id], { env })).code).toBe(0);
  const gone = await runCli(["sessions", "end", id], { env });
  expect(gone).toMatchObject({ code: 1, stdout: "" });
  expect(gone.stderr).toMatch(/^patchbay: .+\n$/);

  const made = await runCli(["keys", "create", "--name", "reader", "--role", "viewer"], { env });
  const key = made.stdout.trim();
  expect(key).toMatch(/^pb_\S+$/);
  const keyId = /Key (\S+):/.exec(made.stderr)?.[1] ?? "";
  expect((await runCli(["keys"], { env })).stdout).toMatch(new RegExp(`^${keyId} +viewer .* reader$`, "m"));
  const link = (await runCli(["open", "--token", key], { env: { PATCHBAY_URL: server.url } })).stdout.trim();
  expect((await fetch(link, { redirect: "manual" })).status).toBe(303);
  expect((await runCli(["keys", "revoke", keyId], { env })).code).toBe(0);
  expect((await server.call("GET", "/v1/sessions", { key })).status).toBe(401);
});

test("a server that is not there, and no token, are one line with what to do", async () => {
  const away = await runCli(["sessions"], { env: { PATCHBAY_URL: "http://127.0.0.1:9", PATCHBAY_TOKEN: "x" } });
  expect(away.stderr).toBe(
    "patchbay: http://127.0.0.1:9 cannot be reached. Is the server running, and is PATCHBAY_URL right?\n",
  );
  expect(away.code).toBe(1);
  expect((await runCli(["run", "x"])).stderr).toMatch(/^patchbay: No token\. Set PATCHBAY_TOKEN/);
});
