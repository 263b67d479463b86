/** Each kind of broken promise that the checker knows. */
export type ViolationKind =
  | "out of order"
  | "seen twice"
  | "number reused"
  | "event lost"
  | "not durable"
  | "complaint"
  | "agent line lost"
  | "agent line unknown"
  | "agent line moved"
  | "two agents"
  | "message given twice"
  | "message not given"
  | "answer given twice"
  | "command lost"
  | "command applied twice"
  | "command moved"
  | "command changed"
  | "refused command applied"
  | "command without end"
  | "turn ended twice"
  | "turn without end"
  | "event after its turn"
  | "no further turn"
  | "left behind"
  | "stuck";

export interface Violation {
  readonly kind: ViolationKind;
  readonly session: string;
  readonly detail: string;
}

/** Makes the violations of one session. */
export const reporter = (session: string) => {
  const found: Violation[] = [];
  return {
    found,
    report: (kind: ViolationKind, detail: string): void => void found.push({ kind, session, detail }),
  };
};
