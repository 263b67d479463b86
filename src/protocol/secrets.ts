/** A secret as its tenant sees it: its value is told to agents that are started with it, and to nobody else. */
export interface SecretView {
  readonly id: string;
  readonly name: string;
  readonly created_at_ms: number;
  readonly updated_at_ms: number;
}

/** Longest value of a secret. In bytes; a variable of a Linux process may have 128 KiB. */
export const SECRET_LIMIT_BYTES = 64 * 1024;
