/** An event's place in its session's log: strictly ascending from 1; 0 means "before the first". */
export type Seq = number & { readonly __brand: "Seq" };
/** The broker's own id of a session, constant for its whole life. Opaque. */
export type SessionId = string & { readonly __brand: "SessionId" };

/** The only way in for a sequence number. @throws RangeError when it is not a safe integer of 0 or more. */
export function seq(value: number): Seq {
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`not a sequence number: ${value}`);
  return value as Seq;
}

/** Brands an id that came from storage or from a path; whether it names a session is for the lookup to say. */
export function sessionId(value: string): SessionId {
  return value as SessionId;
}
