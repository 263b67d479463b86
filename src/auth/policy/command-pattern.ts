import { type Certainty, fold } from "./certainty.ts";
import { matchesGlob } from "./glob.ts";
import { type RawWord, rawWords } from "./raw-words.ts";
import { LONGEST_LINE_CHARS, type ShellLine, type ShellWord, shellParts } from "./shell-parts.ts";

/** A command line, taken apart once for all rules. */
export interface CommandLine extends ShellLine {
  /** The line was too long to be taken apart: it could be anything. */
  readonly tooLong: boolean;
  /** For an opaque line: its words, cut at everything that could begin a command. Folded. */
  readonly raw: readonly (readonly RawWord[])[];
  /** `parts` in the spelling of `may`. */
  readonly folded: readonly (readonly ShellWord[])[];
}

const folded = <T extends ShellWord>(words: readonly T[]): T[] =>
  words.map((word) => ({ ...word, text: fold(word.text) }));

export function readCommand(text: string): CommandLine {
  const line = shellParts(text);
  const tooLong = text.length > LONGEST_LINE_CHARS;
  return {
    ...line,
    tooLong,
    raw: line.opaque && !tooLong ? rawWords(text).map(folded) : [],
    folded: line.parts.map(({ words }) => folded(words)),
  };
}

/**
 * Whether a line matches patterns such as `git status` or `npm test *`. `must`: the line is understood and each of its parts is one of the
 * patterns. `may`: one of its parts could be one of them.
 */
export function matchesCommand(patterns: readonly string[], line: CommandLine, certainty: Certainty): boolean {
  if (certainty === "must") {
    if (line.opaque || line.parts.length === 0) return false;
    const wanted = patterns.map(wordsOfPattern);
    return line.parts.every(({ words }) => wanted.some((pattern) => mustMatch(pattern, words)));
  }
  if (line.tooLong) return true;
  return patterns.some((text) => {
    const pattern = wordsOfPattern(fold(text));
    return (
      line.folded.some((words) => mayMatch(pattern, words, (index) => index === 0)) ||
      line.raw.some((words) => mayMatch(pattern, words, (index) => words[index]?.fixed || words[index]?.command))
    );
  });
}

/** `**`, and a `*` at the end, stand for any number of words; anything else for one word. */
function wordsOfPattern(text: string): readonly string[] {
  const words = text.trim().split(/\s+/);
  return words.at(-1) === "*" ? [...words.slice(0, -1), "**"] : words;
}

function mustMatch(pattern: readonly string[], words: readonly ShellWord[]): boolean {
  return tableOf(pattern, words, matchesGlob)[0]?.[0] === true;
}

function mayMatch(
  pattern: readonly string[],
  words: readonly ShellWord[],
  mayStart: (index: number) => boolean | undefined,
): boolean {
  const starts = words.flatMap((word, index) =>
    mayStart(index) && (!word.fixed || pattern[0] === "**" || isCommand(pattern[0] ?? "", word.text)) ? [index] : [],
  );
  if (starts.length === 0) return false;
  const table = tableOf(pattern, words, (glob, word) =>
    glob === pattern[0] ? isCommand(glob, word) : matchesGlob(glob, word),
  );
  return starts.some((index) => table[index]?.[0] === true);
}

/** A command is also called by its path, `/bin/rm`. */
const isCommand = (glob: string, word: string): boolean =>
  matchesGlob(glob, word) || matchesGlob(glob, word.slice(word.lastIndexOf("/") + 1));

/**
 * `table[w][p]`: the words from w on match the pattern from p on, to the end of both. A word that is not fixed stands for any number of
 * words.
 */
function tableOf(
  pattern: readonly string[],
  words: readonly ShellWord[],
  matches: (glob: string, word: string) => boolean,
): boolean[][] {
  const end = pattern.map((_, index) => pattern.slice(index).every((glob) => glob === "**"));
  const table: boolean[][] = [...words.map(() => []), [...end, true]];
  for (let at = words.length - 1; at >= 0; at--) {
    const word = words[at];
    const next = table[at + 1] ?? [];
    const row: boolean[] = [];
    for (let index = pattern.length; index >= 0; index--) {
      const glob = pattern[index];
      const skipped = next[index] === true;
      const taken = row[index + 1] === true;
      if (glob === undefined) row[index] = word?.fixed === false && skipped;
      else if (glob === "**" || word?.fixed === false) row[index] = skipped || taken;
      else row[index] = next[index + 1] === true && word !== undefined && matches(glob, word.text);
    }
    table[at] = row;
  }
  return table;
}
