import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import type { HookMatcher, HookMatchers } from "../protocol/registration.ts";

/** A client that serves hooks or MCP servers of this session, for as long as it comes back. */
export interface Owner {
  /** The principal, and the client's own word for itself. */
  readonly id: string;
  /** Its newest connection; undefined while it is away. */
  readonly connectionId?: string;
  /** When its connection ended: tells one absence from the next. */
  readonly awaySinceMs?: number;
  readonly hooks: HookMatchers;
  readonly mcpServers: readonly string[];
  /** It stayed away for longer than the grace: its requests get an error at once, until it is back. */
  readonly gone: boolean;
}

// An owner's id is percent-encoded in a callback id, so the first colon ends it and two owners cannot collide.
const callbackId = (owner: Owner, id: string): string => `${encodeURIComponent(owner.id)}:${id}`;

/** What goes into the one initialize of a process: the hooks of all owners under ids that cannot collide. null when there are none. */
export function mergedHooks(owners: readonly Owner[]): JsonObject | null {
  const merged: Record<string, HookMatcher[]> = {};
  for (const owner of owners.filter((item) => !item.gone)) {
    for (const [event, matchers] of Object.entries(owner.hooks)) {
      const own = matchers.map((matcher) => ({
        ...matcher,
        hookCallbackIds: matcher.hookCallbackIds.map((id) => callbackId(owner, id)),
      }));
      merged[event] = [...(merged[event] ?? []), ...own];
    }
  }
  return Object.keys(merged).length === 0 ? null : merged;
}

export function servedNames(owners: readonly Owner[]): readonly string[] {
  return [...new Set(owners.filter((owner) => !owner.gone).flatMap((owner) => owner.mcpServers))];
}

/** Whose request it is, and the callback id that its client knows. */
export function ownerOf(
  owners: readonly Owner[],
  request: JsonObject,
): { owner: Owner; callback_id?: string } | undefined {
  if (request.subtype === "hook_callback") {
    const [prefix = "", ...rest] = (stringField(request, "callback_id") ?? "").split(":");
    const owner = owners.find((item) => encodeURIComponent(item.id) === prefix);
    return owner && { owner, callback_id: rest.join(":") };
  }
  const server = stringField(request, "server_name");
  // The newest owner of a name serves it.
  const owner = server === undefined ? undefined : owners.findLast((item) => item.mcpServers.includes(server));
  return owner && { owner };
}

/** The first control message of a process. */
export function initializeRequest(requestId: string, owners: readonly Owner[]): JsonObject {
  const names = servedNames(owners);
  const servers = names.length === 0 ? {} : { sdkMcpServers: names };
  return {
    type: "control_request",
    request_id: requestId,
    request: { subtype: "initialize", hooks: mergedHooks(owners), ...servers },
  };
}

/** Declares the in-client MCP servers to a process that runs already. */
export function setServersRequest(requestId: string, owners: readonly Owner[]): JsonObject {
  const servers = Object.fromEntries(servedNames(owners).map((name) => [name, { type: "sdk", name }]));
  return { type: "control_request", request_id: requestId, request: { subtype: "mcp_set_servers", servers } };
}

/** An answer of an owner, as far as the CLI needs it to be right. Returns what is wrong. */
export function ownerAnswerProblem(kind: "hook" | "mcp", body: JsonObject): string | undefined {
  if (kind === "mcp" && !isJsonObject(body.mcp_response)) return "response.mcp_response: must be a JSON-RPC reply.";
  return undefined;
}
