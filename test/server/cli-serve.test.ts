import { createServer } from "node:net";
import { expect, test } from "vitest";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { callServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";
import { runCli, startCli } from "./cli-process.ts";

const serveArgs = (folder: string, ...more: string[]) => [
  "serve",
  "--port",
  "0",
  "--data-dir",
  `${folder}/data`,
  ...more,
];

verifies("CLI-SERVE", "--json prints one JSON line on stdout; SIGTERM drains and exits 0 within 10 s", async () => {
  using folder = makeTempDir();
  await using server = startCli(serveArgs(folder.path, "--json"));
  const ready: unknown = JSON.parse(await server.line(/./));
  expect(ready).toEqual({
    url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
    pid: server.pid,
    version: "0.1.0",
  });
  const { url } = ready as { url: string };
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  const started = performance.now();
  server.signal("SIGTERM");
  const end = await server.ended;
  expect(end.code).toBe(0);
  expect(performance.now() - started).toBeLessThan(10_000);
  expect(end.stdout.trim().split("\n")).toHaveLength(1);
});

verifies(
  "CLI-SERVE",
  "prints one URL to click, which a browser's cookie comes from, and the first key once",
  async () => {
    using folder = makeTempDir();
    const env = { PATCHBAY_LOG_LEVEL: "error" };
    await using server = startCli(serveArgs(folder.path), { env });
    const link = /http:\S+/.exec(await server.line(/Patchbay .*http/))?.[0] ?? "";
    const { origin } = new URL(link);
    const redeemed = await fetch(link, { redirect: "manual" });
    expect(redeemed.status).toBe(303);
    expect(redeemed.headers.get("set-cookie")).toMatch(/HttpOnly; SameSite=Strict/);
    expect((await fetch(link, { redirect: "manual" })).status).toBe(401);
    const key = /pb_\S+/.exec(await server.line(/First key/))?.[0] ?? "";
    expect((await callServer(origin, "GET", "/v1/sessions", { key })).status).toBe(200);
    server.signal("SIGINT");
    expect((await server.ended).code).toBe(0);
    await using again = startCli(serveArgs(folder.path), { env });
    await again.line(/Patchbay .*http/);
    again.signal("SIGTERM");
    expect((await again.ended).stdout).not.toContain("pb_");
  },
);

verifies(
  "CLI-SERVE",
  "a port in use and an unusable data directory are one plain line that ends with what to do",
  async () => {
    using folder = makeTempDir();
    const holder = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => holder.once("listening", resolve));
    const address = holder.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const inUse = await runCli(["serve", "--port", String(port), "--data-dir", `${folder.path}/a`], {
      env: { PATCHBAY_LOG_LEVEL: "silent" },
    });
    holder.close();
    expect(inUse.code).toBe(1);
    expect(inUse.stderr.trim().split("\n").at(-1)).toMatch(/^patchbay: .*in use.*PATCHBAY_PORT/);
    const unusable = await runCli(["serve", "--port", "0", "--data-dir", "/proc/patchbay"], {
      env: { PATCHBAY_LOG_LEVEL: "silent" },
    });
    expect(unusable.code).toBe(1);
    expect(unusable.stderr).toMatch(/^patchbay: .*data directory.*\.\n$/i);
    expect(inUse.stdout + unusable.stdout).toBe("");
  },
);

verifies("CONFIG", "an unknown PATCHBAY_ name stops the start and names the nearest", async () => {
  const end = await runCli(["serve"], { env: { PATCHBAY_ADMIN_KY: "x" } });
  expect(end.code).toBe(1);
  expect(end.stderr).toBe(
    "patchbay: PATCHBAY_ADMIN_KY: is not a configuration name. Did you mean PATCHBAY_ADMIN_KEY? Rename or unset it.\n",
  );
});

verifies("CLI-DOCTOR", "each line says ok, warn or fail and what to do; a failure exits 1", async () => {
  using folder = makeTempDir();
  const args = ["doctor", "--port", "0", "--data-dir", `${folder.path}/data`];
  const good = await runCli([...args, "--claude-bin", fakeAgentBinary(folder.path)], {
    env: { ANTHROPIC_API_KEY: "secret-value" },
  });
  expect(good.code).toBe(0);
  expect(good.stdout).toMatch(/^ok {4}Node 2\d/m);
  expect(good.stdout).toMatch(/^ok {4}claude CLI \d+\.\d+\.\d+ \(/m);
  expect(good.stdout).toMatch(/^warn {2}no credentials for agents\n {6}Set PATCHBAY_AGENT_ENV_ANTHROPIC_API_KEY/m);
  expect(good.stdout).toMatch(/^ok {4}data directory .* can be made$/m);
  expect(good.stdout).toMatch(/^(ok|warn) +bubblewrap/m);
  expect(good.stdout).not.toContain("secret-value");
  const bad = await runCli([...args, "--claude-bin", "/absent/claude", "--json"]);
  expect(bad.code).toBe(1);
  const findings = bad.stdout
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  expect(findings).toContainEqual({
    level: "fail",
    what: "claude CLI",
    advice: expect.stringContaining("PATCHBAY_CLAUDE_BIN"),
  });
  const wrong = await runCli(["doctor"], { env: { PATCHBAY_PORT: "x" } });
  expect(wrong.stdout).toMatch(/^fail {2}configuration\n {6}PATCHBAY_PORT: must be a whole number/m);
  expect(wrong.code).toBe(1);
});

test("--version and --help", async () => {
  expect((await runCli(["--version"])).stdout).toBe("0.1.0\n");
  const help = (await runCli(["serve", "--help"])).stdout.replaceAll(/\s+/g, " ");
  for (const flag of [
    "--agent-line-limit-bytes",
    "--query-limit-bytes",
    "--inbound-limit-bytes",
    "--admin-key-file",
    "--agent-env <NAME=value>",
  ]) {
    expect(help).toContain(flag);
  }
  const unknown = await runCli(["srve"]);
  expect(unknown.code).toBe(1);
  expect(unknown.stderr).toContain("serve");
});
