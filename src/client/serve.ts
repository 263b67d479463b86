import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import type { HookMatcher, Registration } from "../protocol/registration.ts";
import type { IncomingRequest } from "./requests.ts";

/** One hook of a client. What it returns is the CLI's hook output; nothing = no objection. */
export interface ServedHook {
  readonly matcher?: string;
  /** In seconds; after it the CLI goes on without an answer, and blocks the tool of a PreToolUse. */
  readonly timeout?: number;
  readonly callback: (
    input: JsonObject,
    request: IncomingRequest,
  ) => Promise<JsonObject | undefined> | JsonObject | undefined;
}

/** Hooks by event name, and MCP servers that live in this program: each takes a JSON-RPC message and gives the reply. */
export interface Served {
  /** Tells two programs of one key apart; a newer connection of the same owner takes over. */
  readonly owner?: string;
  readonly hooks?: Readonly<Record<string, readonly ServedHook[]>>;
  readonly mcpServers?: Readonly<
    Record<string, (message: JsonObject) => Promise<JsonObject | undefined> | JsonObject | undefined>
  >;
}

type Handler = (request: IncomingRequest) => Promise<void>;

/** What goes on the wire for it, and the handler of the requests that come back. */
export function createServing(served: Served): { registration: Registration; handle: Handler } {
  const callbacks = new Map<string, ServedHook["callback"]>();
  const hooks: Record<string, HookMatcher[]> = {};
  for (const [event, list] of Object.entries(served.hooks ?? {})) {
    hooks[event] = list.map(({ matcher, timeout, callback }, index) => {
      const id = `${event}-${index}`;
      callbacks.set(id, callback);
      return {
        hookCallbackIds: [id],
        ...(matcher !== undefined && { matcher }),
        ...(timeout !== undefined && { timeout }),
      };
    });
  }
  const names = Object.keys(served.mcpServers ?? {});
  const registration: Registration = {
    ...(served.owner !== undefined && { owner: served.owner }),
    ...(callbacks.size > 0 && { hooks }),
    ...(names.length > 0 && { mcp_servers: names }),
  };

  async function answer(request: IncomingRequest): Promise<JsonObject> {
    const { server_name, message } = request.request;
    if (request.kind === "mcp") {
      const server = typeof server_name === "string" ? served.mcpServers?.[server_name] : undefined;
      if (server === undefined || !isJsonObject(message)) throw new Error("There is no such server here.");
      // A notification has no reply, but the CLI waits for one.
      return { mcp_response: (await server(message)) ?? { jsonrpc: "2.0", result: {}, id: message["id"] ?? 0 } };
    }
    const callback = callbacks.get(request.callback_id ?? "");
    if (callback === undefined) throw new Error("There is no such hook here.");
    return (await callback(request.input, request)) ?? {};
  }

  return {
    registration,
    async handle(request) {
      let answered: JsonObject;
      try {
        answered = await answer(request);
      } catch (error) {
        await request.fail(error instanceof Error ? error.message : String(error));
        return;
      }
      await request.respond(answered);
    },
  };
}
