/**
 * A connection to an agent behind an axon, as Runloop's remote agents SDK makes it (spec/runloop-contract 4, step by step), on top of the
 * official API client. It knows nothing of Patchbay. The SDK itself is in no package registry.
 */
import type { Runloop } from "@runloop/api-client";
import type { AxonEventView } from "@runloop/api-client/resources/axons/axons";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";

type Handler = (request: JsonObject) => JsonObject | Promise<JsonObject>;

export interface ConnectionOptions {
  readonly replay?: boolean;
  readonly afterSequence?: number;
  /** By subtype of control_request. Without one the SDK allows every tool, and answers others with nothing. */
  readonly handlers?: Readonly<Record<string, Handler>>;
  readonly onAxonEvent?: (event: AxonEventView) => void;
}

export interface RunloopConnection {
  connect(): Promise<void>;
  initialize(): Promise<JsonObject>;
  send(text: string): Promise<void>;
  /** Messages of the agent until the first `result`; it ends early, without an error, when the connection is dead. */
  receiveAgentResponse(): AsyncGenerator<JsonObject>;
  interrupt(): Promise<JsonObject>;
  setPermissionMode(mode: string): Promise<JsonObject>;
  setModel(model: string | null): Promise<JsonObject>;
  disconnect(): void;
  /** The read loop has ended: nothing comes any more. */
  isDead(): boolean;
  readonly lastSequence: number | undefined;
  /** How often a handler was asked. */
  readonly asked: readonly JsonObject[];
}

const SOURCE = "claude-sdk-client";
const INITIALIZE_MS = 120_000;
const CONTROL_MS = 60_000;
/** Clean ends and errors after which the SDK subscribes again. */
const RESUBSCRIBES = 1;

export function createRunloopConnection(
  client: Runloop,
  axonId: string,
  options: ConnectionOptions = {},
): RunloopConnection {
  const asked: JsonObject[] = [];
  const pending = new Map<string, PromiseWithResolvers<JsonObject>>();
  const queue: JsonObject[] = [];
  const held = new Map<string, JsonObject>();
  let waiter: ((message: JsonObject | undefined) => void) | undefined;
  let target: number | undefined;
  let last: number | undefined;
  let isDead = false;
  let isLeaving = false;
  let count = 0;
  let stream: { controller: AbortController } | undefined;

  const publish = (event_type: string, payload: JsonObject): Promise<unknown> =>
    client.axons.publish(axonId, {
      event_type,
      origin: "USER_EVENT",
      payload: JSON.stringify(payload),
      source: SOURCE,
    });

  const answer = async (line: JsonObject): Promise<void> => {
    const request = isJsonObject(line["request"]) ? line["request"] : {};
    asked.push(line);
    const handler = options.handlers?.[String(request["subtype"])] ?? defaultHandler;
    const response = { request_id: line["request_id"], subtype: "success", response: await handler(request) };
    await publish("control_response", { type: "control_response", response });
  };

  const push = (message: JsonObject): void => {
    if (waiter === undefined) queue.push(message);
    else {
      waiter(message);
      waiter = undefined;
    }
  };

  const route = (message: JsonObject): void => {
    const { type, response } = message;
    if (type === "control_response" && isJsonObject(response)) {
      const waits = pending.get(String(response["request_id"]));
      pending.delete(String(response["request_id"]));
      if (response["subtype"] === "error") waits?.reject(new Error(String(response["error"])));
      else waits?.resolve(isJsonObject(response["response"]) ? response["response"] : {});
    } else if (type === "control_request") void answer(message).catch(() => {});
    else if (type !== "control_cancel_request") push(message);
  };

  /** What is still open when the replay is over is asked; what was answered in it is not. */
  const endReplay = (): void => {
    target = undefined;
    for (const line of held.values()) void answer(line).catch(() => {});
    held.clear();
  };

  const replayed = (event: AxonEventView): void => {
    const message = parse(event.payload);
    const { response } = message ?? {};
    if (event.origin === "AGENT_EVENT" && message?.["type"] === "control_request")
      held.set(String(message["request_id"]), message);
    if (event.origin === "USER_EVENT" && isJsonObject(response)) held.delete(String(response["request_id"]));
  };

  const take = (event: AxonEventView): void => {
    last = event.sequence;
    options.onAxonEvent?.(event);
    if (target !== undefined && event.sequence <= target) {
      replayed(event);
      if (event.sequence === target) endReplay();
      return;
    }
    if (target !== undefined) endReplay();
    if (event.origin === "SYSTEM_EVENT" && event.event_type === "broker.error") throw new Error(event.payload);
    const message = event.origin === "AGENT_EVENT" ? parse(event.payload) : undefined;
    if (message !== undefined) route(message);
  };

  const subscribe = async (after: number | undefined) => {
    const opened = await client.axons.subscribeSse(axonId, after === undefined ? {} : { after_sequence: after });
    stream = opened;
    return opened;
  };

  const read = async (first: Awaited<ReturnType<typeof subscribe>>): Promise<void> => {
    let current = first;
    for (let ends = 0; ; ends += 1) {
      try {
        for await (const event of current) take(event);
      } catch (error) {
        for (const { reject } of pending.values()) reject(error);
        pending.clear();
      }
      if (target !== undefined) endReplay();
      if (isLeaving || ends >= RESUBSCRIBES) break;
      try {
        current = await subscribe(last);
      } catch {
        break;
      }
    }
    isDead = true;
    waiter?.(undefined);
  };

  const control = async (request: JsonObject, withinMs = CONTROL_MS): Promise<JsonObject> => {
    count += 1;
    const request_id = `req_${count}_${Math.random().toString(36).slice(2, 10).padEnd(8, "0")}`;
    const waits = Promise.withResolvers<JsonObject>();
    pending.set(request_id, waits);
    const timer = setTimeout(() => waits.reject(new Error(`Control request timeout: ${request["subtype"]}`)), withinMs);
    try {
      await publish("control_request", { type: "control_request", request_id, request });
      return await waits.promise;
    } finally {
      clearTimeout(timer);
      pending.delete(request_id);
    }
  };

  return {
    asked,
    get lastSequence() {
      return last;
    },
    isDead: () => isDead,
    async connect() {
      if (options.replay !== false && options.afterSequence === undefined) {
        const page = await client.axons.events.list(axonId, { limit: 1, include_total_count: true });
        target = page.total_count ?? undefined;
      }
      const opened = await subscribe(options.afterSequence);
      // A target of 0 has no last event that would end the replay: the first live one does.
      void read(opened);
    },
    initialize: () => control({ subtype: "initialize", hooks: null }, INITIALIZE_MS),
    async send(text) {
      await publish("query", {
        type: "user",
        message: { role: "user", content: text },
        parent_tool_use_id: null,
      });
    },
    async *receiveAgentResponse() {
      for (;;) {
        const message =
          queue.shift() ??
          (isDead ? undefined : await new Promise<JsonObject | undefined>((resolve) => (waiter = resolve)));
        if (message === undefined) return;
        yield message;
        if (message["type"] === "result") return;
      }
    },
    interrupt: () => control({ subtype: "interrupt" }),
    setPermissionMode: (mode) => control({ subtype: "set_permission_mode", mode }),
    setModel: (model) => control({ subtype: "set_model", model }),
    disconnect() {
      isLeaving = true;
      for (const { reject } of pending.values()) reject(new Error("Client disconnected"));
      pending.clear();
      // After an in-band 408 this aborts a request that is over: the client's stream then ends with the next event, or with the server.
      stream?.controller.abort();
    },
  };
}

function defaultHandler(request: JsonObject): JsonObject {
  if (request["subtype"] === "can_use_tool") return { behavior: "allow", updatedInput: request["input"] };
  return request["subtype"] === "hook_callback" ? { continue: true } : {};
}

function parse(payload: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(payload);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
