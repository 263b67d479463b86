/**
 * How sure a match must be. An allow needs `must`: what is not understood does not match. A deny or ask takes `may`: what could match
 * does.
 */
export type Certainty = "must" | "may";

/** One spelling for what looks or works alike: case, and the compatibility forms of Unicode. Only for `may`. */
export const fold = (text: string): string => text.normalize("NFKC").toLowerCase();
