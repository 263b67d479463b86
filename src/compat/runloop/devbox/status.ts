import type { JsonObject } from "../../../protocol/json.ts";
import type { DevboxStatus } from "../../../protocol/runloop.schema.ts";
import type { Session } from "../../../sessions/port.ts";
import type { Devbox } from "./record.ts";

type Seen = Pick<Session, "view" | "agentStanding">;

/** Where a devbox stands: its own record and its session, in Runloop's words (spec 1.4). Never `queued`: a client would give up. */
export function statusOf(devbox: Devbox, session: Seen | undefined): DevboxStatus {
  if (devbox.shutdown !== undefined || session === undefined) return "shutdown";
  const { state } = session.view();
  if (state === "ended") return "shutdown";
  if (session.agentStanding() === "none") return devbox.phase === "new" ? "provisioning" : "failure";
  if (devbox.phase === "suspended") return state === "hibernated" || state === "failed" ? "suspended" : "suspending";
  switch (state) {
    case "starting":
      return startingStatus(devbox);
    case "hibernated":
      return restingStatus(devbox, session);
    case "failed":
      return "failure";
    case "idle":
    case "running":
    case "requires_action":
      return "running";
  }
}

/** One that sleeps without its creator knowing is up: the next message finds it so. */
function startingStatus({ phase, on_idle }: Devbox): DevboxStatus {
  if (phase === "new") return "initializing";
  return phase === "resuming" || on_idle !== undefined ? "resuming" : "running";
}

function restingStatus({ phase, on_idle }: Devbox, session: Seen): DevboxStatus {
  if (phase === "new") return "provisioning";
  if (phase === "resuming") return "resuming";
  if (session.agentStanding() === "crashed" || on_idle === undefined) return "running";
  return "suspended";
}

/** DevboxView. */
export function devboxView(devbox: Devbox, status: DevboxStatus): JsonObject {
  const { id, name, metadata, launch_parameters, transitions, shutdown, created_at_ms } = devbox;
  return {
    id,
    status,
    name,
    capabilities: [],
    create_time_ms: created_at_ms,
    end_time_ms: shutdown?.at_ms ?? null,
    launch_parameters,
    metadata,
    state_transitions: transitions,
    ...(shutdown && { shutdown_reason: shutdown.reason }),
    ...(status === "failure" && { failure_reason: "execution_failed" }),
  };
}
