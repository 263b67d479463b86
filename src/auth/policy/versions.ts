import type { Certainty } from "./certainty.ts";

const numbersOf = (version: string): readonly [number, number, number] | undefined => {
  const found = /^v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?![.\d])/.exec(version);
  return found === null ? undefined : [Number(found[1]), Number(found[2] ?? 0), Number(found[3] ?? 0)];
};

function compare(left: readonly number[], right: readonly number[]): number {
  for (const [index, value] of left.entries()) {
    const difference = value - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function holds(comparator: string, actual: readonly number[]): boolean {
  const operator = /^[<>=]*/.exec(comparator)?.[0] ?? "";
  const bound = numbersOf(comparator.slice(operator.length));
  if (bound === undefined) return false;
  const order = compare(actual, bound);
  switch (operator) {
    case ">=":
      return order >= 0;
    case ">":
      return order > 0;
    case "<=":
      return order <= 0;
    case "<":
      return order < 0;
    default:
      return order === 0;
  }
}

/** Whether a version lies in a range such as `>=2.1.300 <3`; missing parts are 0, what follows the numbers is ignored. */
export function inVersions(range: string, version: string | null, certainty: Certainty): boolean {
  const actual = version === null ? undefined : numbersOf(version);
  if (actual === undefined) return certainty === "may";
  return range.split(" ").every((comparator) => holds(comparator, actual));
}
