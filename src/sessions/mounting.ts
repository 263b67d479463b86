import { relativeSegments, SESSIONS_FOLDER } from "../agents/relative-path.ts";
import type { JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { SessionPatch } from "../protocol/sessions.schema.ts";
import { agentNames, checkAgent } from "./creation.ts";
import type { Actor, Mount, Session } from "./port.ts";
import type { SessionRow } from "./rows.ts";
import type { State } from "./state.ts";
import type { Signal } from "./step.ts";

/** A change of a session's row, and what the audit record says of it. */
export interface RowChange {
  readonly row: SessionRow;
  readonly subtype: string;
  readonly decision: JsonObject;
}

/** PATCH. */
export function relabel(row: SessionRow, patch: SessionPatch): RowChange {
  const { name = row.name, metadata = row.metadata, idle_timeout_s: idleTimeoutS } = patch;
  const spec = { ...row.spec, ...(idleTimeoutS !== undefined && { idleTimeoutS }) };
  return { row: { ...row, name, metadata, spec }, subtype: "update", decision: { ...patch } };
}

/** @throws BrokerError agent_unavailable */
export function refuseAgentless({ spec }: SessionRow): void {
  if (spec.agentless !== true) return;
  throw new BrokerError("agent_unavailable", "This session has no agent. Mount one (POST /v1/devboxes) and try again.");
}

function mounted(row: SessionRow, mount: Mount): RowChange {
  const { agentless: _not, idleTimeoutS: _old, secrets: _before, ...rest } = row.spec;
  const { agent, cwd, secrets, idle_timeout_s: idleTimeoutS } = mount;
  const folder = cwd === undefined ? `${SESSIONS_FOLDER}/${row.id}` : relativeSegments(cwd).join("/") || ".";
  const spec = {
    ...rest,
    agent,
    cwd: folder,
    ownFolder: cwd === undefined,
    failsWithAgent: true as const,
    ...(secrets !== undefined && { secrets }),
    ...(idleTimeoutS !== undefined && { idleTimeoutS }),
  };
  return { row: { ...row, spec }, subtype: "mount", decision: { ...mount, agent: agentNames(agent) } };
}

/** The part of a session that gives it an agent after it was made, and takes it away. */
export function agentMounting(parts: {
  readonly row: () => SessionRow;
  readonly state: () => State;
  readonly update: (change: (row: SessionRow) => RowChange, actor: Actor) => Promise<unknown>;
  readonly apply: (signal: Signal) => Promise<void>;
}): Pick<Session, "agentStanding" | "mount" | "unmount" | "suspend" | "resume"> {
  const { row, state, update, apply } = parts;
  const noted =
    (subtype: string) =>
    (before: SessionRow): RowChange => ({ row: before, subtype, decision: {} });
  return {
    agentStanding() {
      if (row().spec.agentless === true) return "none";
      if (state().parked) return "parked";
      return state().phase.name === "hibernated" && state().crashes > 0 ? "crashed" : "ready";
    },
    async mount(mount, actor) {
      if (state().phase.name === "ended") throw new BrokerError("session_ended", "The session has ended.");
      // A secret's variable is held against the same rules as any other, whatever its value.
      const { agent, secrets = {} } = mount;
      const names = Object.fromEntries(Object.keys(secrets).map((variable) => [variable, ""]));
      checkAgent({ ...agent, env: { ...agent.env, ...names } }, state().cliSessionId);
      await update((before) => mounted(before, mount), actor);
      await apply({ type: "unpark" });
    },
    async unmount(actor) {
      const bare = (before: SessionRow): RowChange => ({
        row: { ...before, spec: { ...before.spec, agent: {}, agentless: true } },
        subtype: "unmount",
        decision: {},
      });
      await update(bare, actor);
      await apply({ type: "park", forgets: true });
    },
    async suspend(actor) {
      await update(noted("suspend"), actor);
      await apply({ type: "park", forgets: false });
    },
    async resume(actor) {
      await update(noted("resume"), actor);
      await apply({ type: "unpark" });
    },
  };
}
