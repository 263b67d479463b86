import { createInterface } from "node:readline";
import { styleText } from "node:util";

/** Lines typed this soon after a question appeared were meant for something else. Only where a person types. */
const DEAF_MS = 600;

type Style = Parameters<typeof styleText>[0];

/** Where a command reads and writes: a person's terminal, or pipes. */
export interface Terminal {
  /** Text of ours and cleaned text of others, without a newline of its own. */
  write(text: string, style?: Style): void;
  line(text: string, style?: Style): void;
  /**
   * Asks until a line comes. Undefined at the end of input. While somebody asks, lines are answers; else they go to `onLine`.
   * Rejects with the signal's reason when that aborts.
   */
  ask(prompt: string, signal: AbortSignal): Promise<string | undefined>;
  onLine(listener: (line: string) => void): void;
  /** Ctrl+C. Without a listener it ends the program as usual. */
  onInterrupt(listener: () => void): void;
  /** Resolves at the end of input. */
  readonly ended: Promise<void>;
  close(): void;
}

export interface TerminalStreams {
  readonly input: NodeJS.ReadableStream & { isTTY?: boolean };
  readonly output: NodeJS.WriteStream;
}

/** Control, direction and invisible characters: what an agent could use to write over what is shown, or to hide a part of it. */
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}]/gu;

/** Text of the agent without what could drive the terminal. Newlines and tabs stay. */
export const clean = (text: string): string => text.replace(HIDDEN, "");

/** The same with each such character as a visible code: what is approved is what is seen. */
export const reveal = (text: string): string =>
  text.replace(HIDDEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);

interface Asker {
  readonly since: number;
  readonly answer: (line: string | undefined) => void;
}

/** Starts reading at once, so that no line is lost. Colours only on a terminal that wants them (NO_COLOR). */
export function openTerminal({ input, output }: TerminalStreams): Terminal {
  const reader = createInterface({ input, terminal: false, crlfDelay: Number.POSITIVE_INFINITY });
  const deafMs = input.isTTY === true ? DEAF_MS : 0;
  const early: string[] = [];
  const ended = Promise.withResolvers<void>();
  let asker: Asker | undefined;
  let listener: ((line: string) => void) | undefined;
  let isEnded = false;

  const styled = (text: string, style: Style | undefined): string =>
    style === undefined ? text : styleText(style, text, { stream: output });

  reader.on("line", (line) => {
    if (asker !== undefined) {
      if (performance.now() - asker.since >= deafMs) asker.answer(line);
    } else if (listener !== undefined) listener(line);
    // A pipe says everything at once; a person's stray lines are not kept for a question that comes later.
    else if (input.isTTY !== true) early.push(line);
  });
  reader.on("close", () => {
    isEnded = true;
    asker?.answer(undefined);
    ended.resolve();
  });

  function ask(prompt: string, signal: AbortSignal): Promise<string | undefined> {
    signal.throwIfAborted();
    output.write(prompt);
    const next = early.shift();
    if (next !== undefined) {
      output.write("\n");
      return Promise.resolve(next);
    }
    if (isEnded) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const aborted = () => {
        asker = undefined;
        reject(signal.reason);
      };
      signal.addEventListener("abort", aborted, { once: true });
      asker = {
        since: performance.now(),
        answer(line) {
          asker = undefined;
          signal.removeEventListener("abort", aborted);
          resolve(line);
        },
      };
    });
  }

  return {
    write: (text, style) => void output.write(styled(text, style)),
    line: (text, style) => void output.write(`${styled(text, style)}\n`),
    ask: async (prompt, signal) => ask(prompt, signal),
    onLine(next) {
      listener = next;
      for (const line of early.splice(0)) next(line);
    },
    onInterrupt: (next) => void process.on("SIGINT", next),
    ended: ended.promise,
    close() {
      reader.close();
      input.pause();
    },
  };
}
