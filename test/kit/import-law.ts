import { posix } from "node:path";
import { parseSync } from "vite";

/** Rooms of src/ and the rooms that each may import (design: the one-way law). Files at the top of src/, and cli/, may import all. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  store: ["protocol"],
  log: ["protocol", "store"],
  agents: ["protocol"],
  auth: ["protocol", "store"],
  sessions: ["protocol", "store", "log", "agents"],
  transport: ["protocol", "log"],
  webhooks: ["protocol", "store"],
  api: ["protocol", "auth", "sessions", "transport", "webhooks"],
  compat: ["protocol", "auth", "sessions", "transport"],
  client: ["protocol"],
  demo: ["protocol"],
};

/** The command line's commands, taken out of cli.ts: they stand above every room, as it does. */
const ABOVE_ALL = "cli";

/** Rooms that a page loads: they import neither Node's modules nor any package. */
const RUNS_IN_A_BROWSER = ["protocol", "client"];

/** Packages that only some places may import; a place is a room, a file, or a pattern. Other packages are free, except in a browser. */
const PACKAGE_PLACES: readonly {
  readonly pattern: RegExp;
  readonly places: readonly RegExp[];
  readonly inWords: string;
}[] = [
  {
    pattern: /^@?fastify(\/|$)/,
    places: [/^api\//, /^compat\//, /^broker\.ts$/],
    inWords: "api/, compat/ and broker.ts",
  },
  {
    pattern: /^zod(\/|$)/,
    places: [/^protocol\/.*\.schema\.ts$/, /^options\.ts$/, /^demo\//],
    inWords: "protocol/*.schema.ts, options.ts and demo/",
  },
];

const MAX_LINES = 300;

/** Syntax nodes that load another module, types included; each has its name as `source`. */
const IMPORTING = new Set([
  "ImportDeclaration",
  "ExportAllDeclaration",
  "ExportNamedDeclaration",
  "ImportExpression",
  "TSImportType",
]);

/** Every specifier that a source imports or re-exports, types included; undefined for one that is computed at run time. */
export function importsOf(text: string): (string | undefined)[] {
  const found: (string | undefined)[] = [];
  const walk = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    if (
      "type" in node &&
      typeof node.type === "string" &&
      IMPORTING.has(node.type) &&
      "source" in node &&
      node.source
    ) {
      const { source } = node;
      const isLiteral = typeof source === "object" && "value" in source && typeof source.value === "string";
      found.push(isLiteral ? String(source.value) : undefined);
    }
    for (const child of Object.values(node)) walk(child);
  };
  walk(parseSync("source.ts", text).program);
  return found;
}

const roomOf = (path: string): string | undefined =>
  path.includes("/") ? path.slice(0, path.indexOf("/")) : undefined;

/** compat/ is a house of its own: each dialect is a folder that could be deleted. */
const dialectOf = (path: string): string | undefined => /^compat\/([^/]+)\//.exec(path)?.[1];

/** The file of src/ that a relative import names, or undefined when it leaves src/. */
function resolveWithin(from: string, specifier: string): string | undefined {
  const path = posix.join(posix.dirname(from), specifier);
  return path.startsWith("..") ? undefined : path;
}

function judgeRelative(from: string, specifier: string): string | undefined {
  const to = resolveWithin(from, specifier);
  if (to === undefined) return `${from}: imports ${specifier}, which is outside src/`;
  const [fromRoom, toRoom] = [roomOf(from), roomOf(to)];
  if (fromRoom === undefined || fromRoom === ABOVE_ALL) return undefined;
  if (toRoom === undefined) return `${from}: ${fromRoom}/ may not import ${to}, which knows every room`;
  if (fromRoom !== toRoom && !MAY_IMPORT[fromRoom]?.includes(toRoom))
    return `${from}: ${fromRoom}/ may not import ${toRoom}/ (${to})`;
  if (dialectOf(from) !== undefined && dialectOf(to) !== undefined && dialectOf(from) !== dialectOf(to)) {
    return `${from}: a dialect may not import another one (${to})`;
  }
  return undefined;
}

function judgePackage(from: string, specifier: string): string | undefined {
  const room = roomOf(from);
  const rule = PACKAGE_PLACES.find(({ pattern }) => pattern.test(specifier));
  if (rule !== undefined) {
    return rule.places.some((place) => place.test(from))
      ? undefined
      : `${from}: may not import ${specifier}; only ${rule.inWords} may`;
  }
  if (room === undefined || !RUNS_IN_A_BROWSER.includes(room)) return undefined;
  const kind = specifier.startsWith("node:") ? "Node's own modules" : "packages";
  return `${from}: ${room}/ runs in a browser and may not import ${kind} (${specifier})`;
}

function judgeImport(from: string, specifier: string | undefined): string | undefined {
  if (specifier === undefined) return `${from}: import() of a computed name cannot be checked; write the name out`;
  return specifier.startsWith(".") ? judgeRelative(from, specifier) : judgePackage(from, specifier);
}

/** The way from a client file to a schema file, if there is one: it would carry zod into a page. */
function wayToSchema(start: string, sources: ReadonlyMap<string, string>): readonly string[] | undefined {
  const ways: string[][] = [[start]];
  const seen = new Set<string>([start]);
  for (let way = ways.shift(); way !== undefined; way = ways.shift()) {
    const last = way.at(-1) ?? start;
    if (last.endsWith(".schema.ts")) return way;
    for (const specifier of importsOf(sources.get(last) ?? "")) {
      const next = specifier?.startsWith(".") ? resolveWithin(last, specifier) : undefined;
      if (next === undefined || seen.has(next)) continue;
      seen.add(next);
      ways.push([...way, next]);
    }
  }
  return undefined;
}

/** Every breach of the law in these sources (path from src/ to text), in plain words. */
export function findBreaches(sources: ReadonlyMap<string, string>): string[] {
  const breaches: string[] = [];
  for (const [path, text] of sources) {
    const room = roomOf(path);
    if (room !== undefined && room !== ABOVE_ALL && !(room in MAY_IMPORT))
      breaches.push(`${path}: src/${room}/ is not a room of the table in test/kit/import-law.ts`);
    for (const specifier of importsOf(text)) {
      const breach = judgeImport(path, specifier);
      if (breach !== undefined) breaches.push(breach);
    }
    const lines = text.split("\n").length - 1;
    if (lines > MAX_LINES)
      breaches.push(`${path}: ${lines} lines; is there a second idea in it? (${MAX_LINES} at most, 250 is meant)`);
    const way = room === "client" ? wayToSchema(path, sources) : undefined;
    if (way !== undefined)
      breaches.push(`${path}: client/ reaches a schema file, and zod with it: ${way.join(" -> ")}`);
  }
  return breaches;
}
