import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { fileURLToPath } from "node:url";
import { type PageFile, type PageFiles, readPageFiles } from "./page-files.ts";

/** Run from src/, the client's modules are TypeScript; in dist/ they are JavaScript already. */
const EXTENSION = import.meta.url.endsWith(".ts") ? ".ts" : ".js";
/** The rooms that a page may load (design 1): nothing else of this program is ever handed out. */
const ROOMS = ["client", "protocol"];
const IMPORT = /(\bfrom\s*")(\.{1,2}\/[^"]+)(")/g;

interface Module {
  readonly room: string;
  /** File name without its extension. */
  readonly name: string;
}

const fileOf = ({ room, name }: Module): URL => new URL(`../${room}/${name}${EXTENSION}`, import.meta.url);
/** One flat folder serves all of them, so the room is a part of the name: `client.connect.js`. */
const assetOf = ({ room, name }: Module): string => `${room}.${name}.js`;

function strip(source: string): string {
  // Node calls this function experimental on stderr at its first use; whoever runs from source knows.
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(source);
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** @throws Error when a module of the client imports something that no browser may have */
function resolveImport(from: Module, specifier: string): Module {
  const match = /^(?:\.\/|\.\.\/([a-z-]+)\/)([a-z-]+)\.(?:ts|js)$/.exec(specifier);
  const room = match?.[1] ?? from.room;
  if (match?.[2] === undefined || !ROOMS.includes(room)) {
    throw new Error(`${from.room}/${from.name} imports ${specifier}, which no page may load`);
  }
  return { room, name: match[2] };
}

/** The module as a browser takes it, and what it imports. */
function translate(module: Module): { readonly code: string; readonly imports: readonly Module[] } {
  const source = readFileSync(fileOf(module), "utf8");
  const imports: Module[] = [];
  // Types are stripped first: what is imported for its types only is not loaded.
  const code = (EXTENSION === ".ts" ? strip(source) : source).replace(IMPORT, (_, before, specifier, after) => {
    const imported = resolveImport(module, specifier);
    imports.push(imported);
    return `${before}./${assetOf(imported)}${after}`;
  });
  return { code, imports };
}

function clientModules(): PageFiles {
  const files = new Map<string, PageFile>();
  const waiting: Module[] = [{ room: "client", name: "index" }];
  for (let module = waiting.pop(); module !== undefined; module = waiting.pop()) {
    const name = assetOf(module);
    if (files.has(name)) continue;
    const { code, imports } = translate(module);
    files.set(name, { bytes: Buffer.from(code), type: "text/javascript; charset=utf-8" });
    waiting.push(...imports);
  }
  return files;
}

/**
 * Everything that the page at `/` is made of, by name: its own files, and patchbay/client as browser modules (`client.index.js`).
 * Read when somebody first asks: from source, translating takes longer than the rest of the server's start.
 */
export function createPageFiles(): Pick<PageFiles, "get"> {
  let loaded: PageFiles | undefined;
  return {
    get(name) {
      loaded ??= new Map([...clientModules(), ...readPageFiles([fileURLToPath(new URL("./page", import.meta.url))])]);
      return loaded.get(name);
    },
  };
}
