import { existsSync, rmSync, statSync } from "node:fs";
import { expect, test } from "vitest";
import { createBroker } from "../../src/broker.ts";
import { ADMIN_KEY } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

const ONE = "the-first-key-of-thirty-two-characters";
const TWO = "another-key-which-came-a-year-later";

test("a server makes its key, goes over to a given one and to the next, and does not start without one that it needs", async () => {
  using folder = makeTempDir();
  const keyFile = `${folder.path}/secrets.key`;
  const start = async (secretsKey?: string) => {
    const broker = await createBroker({
      port: 0,
      dataDir: folder.path,
      adminKey: ADMIN_KEY,
      runner: "inline",
      logLevel: "silent",
      webhookAllowedHosts: ["127.0.0.1"],
      ...(secretsKey !== undefined && { secretsKey }),
    });
    const webhooks = async (method: string, body?: unknown): Promise<string> => {
      const answer = await fetch(`${broker.url}/v1/webhooks`, {
        method,
        headers: { authorization: `Bearer ${ADMIN_KEY}`, "content-type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      return answer.text();
    };
    return { webhooks, [Symbol.asyncDispose]: async () => void (await broker.close()) };
  };
  {
    await using first = await start();
    expect(
      await first.webhooks("POST", { url: "http://127.0.0.1:8999/", secret: "a-secret-of-the-receiver" }),
    ).toContain("127.0.0.1:8999");
    expect(statSync(keyFile).mode & 0o777).toBe(0o600);
  }
  {
    await using second = await start(ONE);
    expect(await second.webhooks("GET")).toContain("127.0.0.1:8999");
  }
  rmSync(keyFile);
  const refused = start(TWO);
  await expect(refused).rejects.toMatchObject({ code: "config_invalid" });
  {
    await using third = await start(`${TWO},${ONE}`);
    expect(await third.webhooks("GET")).not.toContain("a-secret-of-the-receiver");
  }
  await using last = await start(TWO);
  expect(await last.webhooks("GET")).toContain("127.0.0.1:8999");
  expect(existsSync(keyFile)).toBe(false);
});
