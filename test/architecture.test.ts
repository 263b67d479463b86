import { expect, test } from "vitest";
import { findBreaches, importsOf } from "./kit/import-law.ts";
import { readSources } from "./kit/sources.ts";

test("src/ keeps the one-way import law", () => {
  const sources = readSources("src");
  expect(sources.size).toBeGreaterThan(0);
  expect(findBreaches(sources)).toEqual([]);
});

/** What the law says of one planted file, next to files that are in order. */
const judge = (path: string, text: string, others: Record<string, string> = {}): string[] =>
  findBreaches(new Map(Object.entries({ [path]: text, ...others })));

test.each([
  ["log/tail.ts", 'import { start } from "../agents/process.ts";', "log/ may not import agents/"],
  ["log/tail.ts", 'import type { Agent } from "../agents/port.ts";', "log/ may not import agents/"],
  ["log/tail.ts", 'export { start } from "../agents/process.ts";', "log/ may not import agents/"],
  ["log/tail.ts", 'const { start } = await import("../agents/process.ts");', "log/ may not import agents/"],
  ["log/tail.ts", 'export type A = import("../agents/port.ts").Agent;', "log/ may not import agents/"],
  ["log/tail.ts", 'import "../agents/process.ts";', "log/ may not import agents/"],
  ["log/tail.ts", 'import {\n  start,\n  stop,\n} from "../agents/process.ts";', "log/ may not import agents/"],
  ["log/tail.ts", 'import { createBroker } from "../broker.ts";', "knows every room"],
  ["log/tail.ts", "const room = await import(name);", "computed name"],
  ["log/tail.ts", 'import { wait } from "../../test/kit/wait.ts";', "outside src/"],
  [
    "protocol/seq.ts",
    'import { randomUUID } from "node:crypto";',
    "protocol/ runs in a browser and may not import Node's own modules",
  ],
  ["client/index.ts", 'import WebSocket from "ws";', "client/ runs in a browser and may not import packages"],
  ["protocol/frames.ts", 'import { z } from "zod";', "only protocol/*.schema.ts, options.ts and demo/ may"],
  ["sessions/actor.ts", 'import type { FastifyRequest } from "fastify";', "only api/, compat/ and broker.ts may"],
  ["transport/ws.ts", 'import socket from "@fastify/websocket";', "only api/, compat/ and broker.ts may"],
  ["demo/model.ts", 'import { appendEvent } from "../log/log.ts";', "demo/ may not import log/"],
  ["compat/runloop/routes.ts", 'import { x } from "../claude-sdk/hello.ts";', "a dialect may not import another one"],
  ["compat/runloop/routes.ts", 'import { x } from "../../api/app.ts";', "compat/ may not import api/"],
  ["api/app.ts", 'import { serve } from "../cli/serve.ts";', "api/ may not import cli/"],
  ["helpers/misc.ts", "export const a = 1;", "is not a room of the table"],
  ["log/tail.ts", "\n".repeat(301), "301 lines"],
])("the law refuses in %s: %s", (path, text, words) => {
  expect(judge(path, text)).toEqual([expect.stringContaining(words)]);
});

test("the law follows the client's imports to a schema file", () => {
  const others = {
    "protocol/index.ts": 'export * from "./frames.ts";',
    "protocol/frames.ts": 'import { frame } from "./frames.schema.ts";',
    "protocol/frames.schema.ts": 'import { z } from "zod";',
  };
  expect(judge("client/index.ts", 'import { a } from "../protocol/index.ts";', others)).toEqual([
    expect.stringContaining("client/index.ts -> protocol/index.ts -> protocol/frames.ts -> protocol/frames.schema.ts"),
  ]);
});

test("the law allows what the table allows, and is not misled by comments and texts", () => {
  expect(
    judge("sessions/actor.ts", 'import type { Log } from "../log/port.ts";\n// import { x } from "../api/app.ts";'),
  ).toEqual([]);
  expect(judge("broker.ts", 'import Fastify from "fastify";\nimport { x } from "./log/log.ts";')).toEqual([]);
  expect(
    judge(
      "cli/serve.ts",
      'import { createBroker } from "../broker.ts";\nimport { connect } from "../client/index.ts";',
    ),
  ).toEqual([]);
  expect(judge("protocol/frames.schema.ts", 'import { z } from "zod";')).toEqual([]);
  expect(importsOf('const page = `\nimport { x } from "../src/cart.js";\n`;')).toEqual([]);
  expect(importsOf('/** As in `import("./a.ts")`. */\nexport const from = "b";')).toEqual([]);
});
