import { isWrapper, type ShellWord } from "./shell-parts.ts";

/** A word of an opaque line, and whether the shell may run it as a command. */
export interface RawWord extends ShellWord {
  readonly command: boolean;
}

/** What ends a command, or begins one, wherever it stands: also inside quotes, which may be handed to another shell. */
const BREAKS = /[;|&\n\r()`<>{}]+/;
const SPACES = /[\p{Z}\p{Cc}\p{Cf}]+/u;
const UNCERTAIN = /[$*?[\]~]/;

/**
 * The words of a line that was not understood, cut at everything that could begin a command. Quotes and backslashes are taken away, so that
 * `r''m`, `r\m` and `sh -c "rm x"` all show their `rm`.
 */
export function rawWords(text: string): readonly (readonly RawWord[])[] {
  const bare = text
    .replaceAll("\\\n", "")
    .replace(/\$(?=['"])/g, "$ ")
    .replace(/['"\\]/g, "")
    .replace(/\d+(?=[<>])/g, "");
  const spelled = bare.split(BREAKS).map(wordsOf);
  // Brace expansion makes words of `{rm,-rf,x}`, and `alias ls=rm` a command of what stands behind the sign.
  const hidden = /[{=]/.test(bare) ? bare.replace(/[,=]/g, " ").split(BREAKS).map(wordsOf) : [];
  return [...spelled, ...hidden].filter((words) => words.length > 0);
}

function wordsOf(segment: string): readonly RawWord[] {
  const texts = segment
    .split(SPACES)
    .map((word) => word.replace(/^=+/, ""))
    .filter((word) => word !== "");
  let wrapped = false;
  let begins = true;
  return texts.map((text) => {
    const fixed = !UNCERTAIN.test(text);
    const command = begins || wrapped;
    // Options and their values stand between a wrapper and its command, so everything after it may be one.
    wrapped ||= command && isWrapper(text);
    // What may expand to nothing leaves its place to the next word.
    begins &&= !fixed;
    return { text, fixed, command };
  });
}
