import type { Registration } from "../protocol/registration.ts";
import { failure } from "./controls.ts";
import { initializeRequest, mergedHooks, type Owner, servedNames, setServersRequest } from "./owners.ts";
import { resolveRequest } from "./requests.ts";
import { change, tell, type Work } from "./work.ts";

export interface Registering {
  readonly owner: string;
  readonly connectionId: string;
  readonly registration: Registration;
}

/** A client registers, or comes back: its newest connection is the one that is asked. */
export function onRegister(work: Work, { owner: id, connectionId, registration }: Registering): void {
  const before = work.state.owners;
  const { hooks = {}, mcp_servers: mcpServers = [] } = registration;
  const owner: Owner = { id, connectionId, hooks, mcpServers, gone: false };
  change(work, { owners: [...before.filter((item) => item.id !== id), owner] });
  told(work, owner, true);
  declare(work, before);
}

/** What a running process has to learn. Hooks by a second initialize, which 2.1.197 ignores: there they count from the next process on. */
function declare(work: Work, before: readonly Owner[]): void {
  if (work.state.phase.name !== "live") return;
  const { owners } = work.state;
  const names = (list: readonly Owner[]): string => JSON.stringify([...servedNames(list)].sort());
  if (names(before) !== names(owners)) work.stdin.push(setServersRequest(`broker-${work.newId()}`, owners));
  if (JSON.stringify(mergedHooks(before)) !== JSON.stringify(mergedHooks(owners))) {
    work.stdin.push(initializeRequest(`broker-${work.newId()}`, owners));
  }
}

function told(work: Work, owner: Owner, connected: boolean): void {
  tell(work, "registration.changed", {
    owner: owner.id,
    connected,
    hooks: Object.keys(owner.hooks),
    mcp_servers: [...owner.mcpServers],
  });
}

/** A connection has ended. Its owner has the grace to come back before what it should answer gets an error. */
export function onUnregister(work: Work, connectionId: string): void {
  const owner = work.state.owners.find((item) => item.connectionId === connectionId);
  if (owner === undefined) return;
  const { connectionId: _gone, ...rest } = owner;
  const away: Owner = { ...rest, awaySinceMs: work.now };
  change(work, { owners: work.state.owners.map((item) => (item === owner ? away : item)) });
  told(work, away, false);
}

/** The grace of one absence is over: nobody's turn waits for a client that is not there (spec/claude-protocol 0.10). */
export function onOwnerDue(work: Work, ownerId: string, awaySinceMs: number | undefined): void {
  const owner = work.state.owners.find((item) => item.id === ownerId);
  if (owner === undefined || owner.connectionId !== undefined) return;
  // It was back in between: its next absence has a timer of its own.
  if (owner.awaySinceMs !== awaySinceMs) return;
  change(work, { owners: work.state.owners.map((item) => (item === owner ? { ...owner, gone: true } : item)) });
  for (const open of work.state.requests.filter((request) => request.owner === ownerId)) {
    const error = "The client that serves this is not connected.";
    work.stdin.push(failure(open.request_id, error));
    resolveRequest(work, open.request_id, { outcome: "answered", decision: { error }, decided_by: "broker" });
  }
}
