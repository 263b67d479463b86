/** A word of a shell line, unquoted. */
export interface ShellWord {
  readonly text: string;
  /** False when the shell makes something else of it that the line does not say: an expansion or a glob. */
  readonly fixed: boolean;
}

/** One simple command of a shell line. */
export interface ShellPart {
  readonly words: readonly ShellWord[];
}

export interface ShellLine {
  readonly parts: readonly ShellPart[];
  /**
   * Something in the line is beyond what its words say: a substitution, a variable, a redirection, a here-document, a glob, a function, a
   * wrapper, a quote that never ends. Such a line can be refused by a rule, but never allowed by one.
   */
  readonly opaque: boolean;
}

/** Longer lines are not taken apart. In characters. */
export const LONGEST_LINE_CHARS = 16 * 1024;

const SEPARATORS = new Set([";", "|", "&", "\n"]);
/** Unquoted, each of these makes another word of the one it stands in. */
const EXPANDING = new Set(["$", "`", "*", "?", "[", "]", "~"]);
/** Unquoted, each of these makes the shell do more than run the words. */
const POWERFUL = new Set([...EXPANDING, "<", ">", "(", ")", "{", "}", "#", "!"]);
/** In double quotes the shell still acts on these. */
const POWERFUL_IN_QUOTES = new Set(["$", "`", "!"]);
const ESCAPABLE_IN_QUOTES = new Set(["$", "`", '"', "\\"]);
/** Controls, spaces and invisible marks that no person reads as what they are; only space, tab and newline are plain. */
const DECEPTIVE = /[\p{Cc}\p{Cf}\p{Cs}\p{Z}\u115f\u1160\u2800\u3164\uffa0]/u;

/**
 * Words after which the line does not say what runs: they take a command of their own, change what later words mean, or belong to the
 * shell's grammar.
 */
const WRAPPERS = new Set(
  (
    "sudo doas su runuser pkexec setpriv env xargs sh bash zsh dash ash ksh mksh csh tcsh fish rbash busybox toybox pwsh powershell cmd " +
    "eval exec source . command builtin noglob nocorrect - nohup time nice ionice chrt taskset timeout setsid stdbuf unbuffer watch parallel entr " +
    "flock script strace ltrace chroot unshare nsenter systemd-run at batch find fd ssh tmux screen expect rlwrap winpty start cmd.exe " +
    "if then else elif fi for foreach while until do done end case esac select in function repeat coproc trap alias unalias hash " +
    "enable export declare typeset readonly local set shopt setopt let read mapfile readarray bind complete"
  ).split(" "),
);

interface Scan {
  readonly parts: ShellPart[];
  words: ShellWord[];
  word: string | undefined;
  fixed: boolean;
  opaque: boolean;
}

/** Whether what follows this word is a command in its own right, or one of the shell's own words. */
export function isWrapper(word: string): boolean {
  // An assignment before a command, and zsh's `=name`, change what runs.
  return word.includes("=") || WRAPPERS.has(word.slice(word.lastIndexOf("/") + 1).toLowerCase());
}

/**
 * Cuts a shell line into its simple commands, so that `git status; rm -rf x` is not `git status`. Deliberately small: what it does not
 * understand it calls opaque.
 */
export function shellParts(text: string): ShellLine {
  if (text.length > LONGEST_LINE_CHARS) return { parts: [], opaque: true };
  const scan: Scan = { parts: [], words: [], word: undefined, fixed: true, opaque: isDeceptive(text) };
  let at = 0;
  while (at < text.length) at = step(scan, text, at);
  closePart(scan);
  const wrapped = scan.parts.some(({ words }) => isWrapper(words[0]?.text ?? ""));
  return { parts: scan.parts, opaque: scan.opaque || wrapped };
}

const isDeceptive = (text: string): boolean => DECEPTIVE.test(text.replace(/[ \t\n]/g, ""));

/** Reads what stands at `at`; returns where to go on. */
function step(scan: Scan, text: string, at: number): number {
  const char = text.charAt(at);
  if (char === "'") return singleQuoted(scan, text, at);
  if (char === '"') return doubleQuoted(scan, text, at);
  if (char === "\\") return escaped(scan, text, at);
  if (SEPARATORS.has(char)) {
    closePart(scan);
    return at + 1;
  }
  if (char === " " || char === "\t") {
    closeWord(scan);
    return at + 1;
  }
  // zsh makes the path of a command of `=name`.
  if (POWERFUL.has(char) || (char === "=" && scan.word === undefined)) scan.opaque = true;
  // A brace with something behind it may make several words; one that stands alone only groups.
  if (EXPANDING.has(char) || (char === "{" && !/^\s?$/.test(text.charAt(at + 1)))) scan.fixed = false;
  scan.word = (scan.word ?? "") + char;
  return at + 1;
}

function unclear(scan: Scan): void {
  scan.opaque = true;
  scan.fixed = false;
}

/** A backslash outside quotes: the word is known, but the line is not what a person reads. */
function escaped(scan: Scan, text: string, at: number): number {
  scan.opaque = true;
  const next = text.charAt(at + 1);
  if (next !== "\n") scan.word = (scan.word ?? "") + next;
  return at + 2;
}

function singleQuoted(scan: Scan, text: string, at: number): number {
  const end = text.indexOf("'", at + 1);
  if (end === -1) unclear(scan);
  scan.word = (scan.word ?? "") + text.slice(at + 1, end === -1 ? text.length : end);
  return end === -1 ? text.length : end + 1;
}

function doubleQuoted(scan: Scan, text: string, start: number): number {
  scan.word ??= "";
  for (let at = start + 1; at < text.length; at++) {
    let char = text.charAt(at);
    if (char === '"') return at + 1;
    if (char === "\\") {
      scan.opaque = true;
      const next = text.charAt(at + 1);
      if (next === "\n" || ESCAPABLE_IN_QUOTES.has(next)) {
        at += 1;
        char = next === "\n" ? "" : next;
      }
    } else if (POWERFUL_IN_QUOTES.has(char)) unclear(scan);
    scan.word += char;
  }
  unclear(scan);
  return text.length;
}

function closeWord(scan: Scan): void {
  if (scan.word !== undefined) scan.words.push({ text: scan.word, fixed: scan.fixed });
  scan.word = undefined;
  scan.fixed = true;
}

function closePart(scan: Scan): void {
  closeWord(scan);
  if (scan.words.length > 0) scan.parts.push({ words: scan.words });
  scan.words = [];
}
