/** `node bench/hot.ts FILE…`: where the time of CPU profiles (`--profile`) goes, by function: its own, and with what it calls. */
import { readFileSync } from "node:fs";
import { isJsonObject, type JsonObject, stringField } from "../src/protocol/json.ts";

const SHOWN = 40;

interface Cost {
  own: number;
  whole: number;
}

const objectsIn = (value: unknown): JsonObject[] => (Array.isArray(value) ? value.filter(isJsonObject) : []);
const numbersIn = (value: unknown): number[] => (Array.isArray(value) ? value.map(Number) : []);

function nameOf(node: JsonObject): string {
  const frame = isJsonObject(node["callFrame"]) ? node["callFrame"] : {};
  const url = (stringField(frame, "url") ?? "").replace(/^.*\/(src|bench|node_modules)\//, "$1/");
  const line = Number(frame["lineNumber"]) + 1;
  return `${stringField(frame, "functionName") || "(anonymous)"} ${url === "" ? "" : `${url}:${line}`}`;
}

/** Adds up samples by function; a function that calls itself counts once. */
function addProfile(costs: Map<string, Cost>, profile: JsonObject): void {
  const nodes = objectsIn(profile["nodes"]);
  const byId = new Map(nodes.map((node) => [Number(node["id"]), node]));
  const parentOf = new Map(nodes.flatMap((node) => numbersIn(node["children"]).map((child) => [child, node] as const)));
  const micros = numbersIn(profile["timeDeltas"]);
  for (const [index, id] of numbersIn(profile["samples"]).entries()) {
    const seen = new Set<string>();
    for (let node = byId.get(id); node !== undefined; node = parentOf.get(Number(node["id"]))) {
      const name = nameOf(node);
      const cost = costs.get(name) ?? { own: 0, whole: 0 };
      costs.set(name, cost);
      if (seen.size === 0) cost.own += micros[index] ?? 0;
      if (!seen.has(name)) cost.whole += micros[index] ?? 0;
      seen.add(name);
    }
  }
}

const costs = new Map<string, Cost>();
for (const file of process.argv.slice(2)) {
  const profile: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (isJsonObject(profile)) addProfile(costs, profile);
}
const busy = [...costs].filter(([name]) => !/^\((idle|root)\)/.test(name));
const total = busy.reduce((sum, [, { own }]) => sum + own, 0);
for (const field of ["own", "whole"] as const) {
  process.stdout.write(`\n${field === "own" ? "own time" : "with what it calls"}\n`);
  for (const [name, cost] of busy.toSorted((a, b) => b[1][field] - a[1][field]).slice(0, SHOWN)) {
    process.stdout.write(`${((cost[field] * 100) / total).toFixed(1).padStart(5)} %  ${name}\n`);
  }
}
