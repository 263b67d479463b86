import type { Requirement } from "../requirements.ts";

export interface GateInput {
  readonly requirements: Readonly<Record<string, Requirement>>;
  /** Test sources: path to text. */
  readonly tests: ReadonlyMap<string, string>;
  /** PROTOCOL.md, or undefined when there is none. */
  readonly protocol: string | undefined;
}

/** A requirement's id: capital words joined by hyphens, "LOG-RESUME" or "KEYS". */
const ID = "[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)*";

/** Ids that tests cite by `verifies("ID", …)`, each with the files that do. */
function citations(tests: ReadonlyMap<string, string>): Map<string, string[]> {
  const cited = new Map<string, string[]>();
  for (const [path, text] of tests) {
    const code = text.replace(/^\s*(\/\/|\/?\*).*$/gm, "");
    for (const match of code.matchAll(/\bverifies(?:\.\w+)?\(\s*["'`]([^"'`]*)["'`]/g)) {
      const id = match[1] ?? "";
      cited.set(id, [...(cited.get(id) ?? []), path]);
    }
  }
  return cited;
}

/** The tags of PROTOCOL.md: `**[ID]**`. */
function tags(protocol: string): string[] {
  return [...protocol.matchAll(new RegExp(`\\*\\*\\[(${ID})\\]\\*\\*`, "g"))].map((match) => match[1] ?? "");
}

function judgeProtocol(requirements: GateInput["requirements"], protocol: string | undefined): string[] {
  if (protocol === undefined)
    return ["PROTOCOL.md does not exist; it states the promises that test/requirements.ts names"];
  const found = tags(protocol);
  const twice = found.filter((id, index) => found.indexOf(id) !== index);
  const named = Object.entries(requirements).filter(([, { source }]) => source.startsWith("PROTOCOL.md"));
  return [
    ...twice.map((id) => `PROTOCOL.md tags [${id}] twice`),
    ...found
      .filter((id) => !(id in requirements))
      .map((id) => `PROTOCOL.md promises [${id}], which test/requirements.ts does not name`),
    ...named
      .filter(([id]) => !found.includes(id))
      .map(([id]) => `${id} names PROTOCOL.md as its source, which has no **[${id}]**`),
  ];
}

/** Everything that is wrong between the promises and the tests, one plain sentence each. */
export function judgeRequirements({ requirements, tests, protocol }: GateInput): string[] {
  const cited = citations(tests);
  const problems: string[] = [];
  if (Object.keys(requirements).length === 0) problems.push("test/requirements.ts names no promise");
  for (const [id, { knownGap }] of Object.entries(requirements)) {
    if (!new RegExp(`^${ID}$`).test(id)) problems.push(`${id} is not an id: capital words joined by hyphens`);
    const files = cited.get(id);
    if (knownGap === undefined && files === undefined)
      problems.push(`${id} is proved by no test: cite it in one, or give its knownGap`);
    if (knownGap !== undefined && files !== undefined)
      problems.push(`${id} is declared a known gap, but ${files.join(", ")} proves it: remove the knownGap`);
    if (knownGap?.trim() === "") problems.push(`${id} is a known gap without a reason`);
  }
  for (const [id, files] of cited) {
    if (!(id in requirements))
      problems.push(`${files.join(", ")} cites ${id}, which test/requirements.ts does not name`);
  }
  return [...problems, ...judgeProtocol(requirements, protocol)];
}

/** Numbers of the contract's promises that no requirement names as its source ("contract 6.<number>"). */
export function missingPromises(requirements: GateInput["requirements"], count: number): number[] {
  const sources = Object.values(requirements).map(({ source }) => source);
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  return numbers.filter(
    (number) => !sources.some((source) => new RegExp(`contract 6\\.${number}(?!\\d)`).test(source)),
  );
}
