import type { Cursor } from "../protocol/frames.ts";
import { type Seq, seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";

/** Where to start in a log whose head is known. @throws BrokerError cursor_ahead */
export function startOf(after: Cursor, head: Seq): Seq {
  if (after === "head") return head;
  if (after <= head) return seq(after);
  throw new BrokerError("cursor_ahead", `after ${after} is above the head, ${head}. Is it of another session?`, {
    details: { after, head },
  });
}
