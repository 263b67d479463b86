import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type FaultProxy, startFaultProxy } from "../kit/fault-proxy.ts";
import { needs } from "../kit/needs.ts";
import { startServer, type TestServer } from "../kit/server.ts";

const executablePath = needs("chromium");
let browser: Browser | undefined;
let server: TestServer | undefined;
let proxy: FaultProxy | undefined;

beforeAll(async () => {
  if (executablePath === undefined) return;
  // Tests run as root in containers, where Chromium's own sandbox cannot.
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  server = await startServer();
  proxy = await startFaultProxy(server.broker.port);
});
afterAll(async () => {
  await browser?.close();
  await proxy?.[Symbol.asyncDispose]();
  await server?.[Symbol.asyncDispose]();
});

interface Opened extends AsyncDisposable {
  readonly page: Page;
  /** Script errors, refused resources and violations of the content security policy. */
  readonly faults: readonly string[];
}

/** The page as a person gets it: by the link that the server prints, through a line that can be cut. */
async function open(): Promise<Opened> {
  if (browser === undefined || server === undefined || proxy === undefined) throw new Error("not started");
  const context = await browser.newContext();
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => {
    // A cut line is reported by the browser itself; that is what one test is about.
    if (message.type() === "error" && !/WebSocket|ERR_CONNECTION/.test(message.text())) faults.push(message.text());
  });
  const link = new URL(await server.broker.consoleUrl());
  link.port = String(proxy.port);
  await page.goto(link.href);
  return { page, faults, [Symbol.asyncDispose]: () => context.close() };
}

const say = async (page: Page, text: string): Promise<void> => {
  await page.fill("#message", text);
  await page.press("#message", "Enter");
};
const shows = (page: Page, selector: string, text: string | RegExp): Promise<void> =>
  page.locator(selector).filter({ hasText: text }).first().waitFor();

test.skipIf(!executablePath)(
  "a person starts a session, talks, and sees the stream, under a strict policy",
  async () => {
    await using opened = await open();
    const { page, faults } = opened;
    await page.click("#create");
    await say(page, "hello <img src=x onerror=alert(1)>");
    await shows(page, "#log .user", "hello <img src=x");
    await shows(page, "#log .text", "echo: hello <img src=x onerror=alert(1)>");
    expect(await page.locator("#log img").count()).toBe(0);
    expect(await page.locator("#log .text").count()).toBe(1);
    expect(page.url()).not.toContain("ticket");
    await page.click("#raw summary");
    await shows(page, "#raw-lines", /"event_type":"turn.completed"/);
    await page.reload();
    await shows(page, "#log .text", "echo: hello");
    expect(await page.locator("#log .text").count()).toBe(1);
    expect(faults).toEqual([]);
  },
);

test.skipIf(!executablePath)(
  "a request takes no focus and no stray key decides it; a click on Allow does",
  async () => {
    await using opened = await open();
    const { page, faults } = opened;
    await page.click("#create");
    await page.focus("#message");
    await say(page, "!ask");
    await page.locator(".request").waitFor();
    for (const key of ["y", "a", "Space", "1", "Escape", "Backspace"]) await page.keyboard.press(key);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("message");
    expect(await page.inputValue("#message")).toBe("ya ");
    await page.keyboard.press("Enter");
    await shows(page, "#log .user", "ya");
    expect(await page.locator(".request").count()).toBe(1);
    // Clicks in the first moments are not meant for it either, so the answer may take a second one.
    await expect
      .poll(async () => {
        const allow = page.locator(".request button", { hasText: "Allow" });
        if ((await allow.count()) > 0) await allow.click({ timeout: 1_000 }).catch(() => {});
        return page.locator(".request").count();
      })
      .toBe(0);
    await shows(page, "#log .text", '"behavior":"allow"');
    expect(faults).toEqual([]);
  },
);

test.skipIf(!executablePath)("a question is answered with an option, an interrupt ends a turn", async () => {
  await using opened = await open();
  const { page, faults } = opened;
  await page.click("#create");
  await say(page, "!question");
  await page.locator(".request input[type=radio]").first().check();
  await expect
    .poll(async () => {
      const answer = page.locator(".request button", { hasText: /^Answer$/ });
      if ((await answer.count()) > 0) await answer.click({ timeout: 1_000 }).catch(() => {});
      return page.locator(".request").count();
    })
    .toBe(0);
  await shows(page, "#log .text", '"answers"');
  await say(page, "!stall");
  await shows(page, "#state", "running");
  await page.click("#interrupt");
  await shows(page, "#log .turn", "interrupted");
  expect(faults).toEqual([]);
});

test.skipIf(!executablePath)("a cut line comes back by itself and nothing is shown twice", async () => {
  await using opened = await open();
  const { page } = opened;
  await page.click("#create");
  await say(page, "!stream 200 10 5");
  await page.locator("#log .text").waitFor();
  proxy?.cut();
  await shows(page, "#status", "Connected.");
  await say(page, "after");
  await shows(page, "#log .text", "echo: after");
  expect(await page.locator("#log .text").count()).toBe(2);
  expect((await page.locator("#log .text").first().textContent())?.length).toBe(2000);
});
