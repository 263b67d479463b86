import { Runloop } from "@runloop/api-client";
import type { AxonEventView } from "@runloop/api-client/resources/axons/axons";
import type { DevboxCreateParams, DevboxView } from "@runloop/api-client/resources/devboxes/devboxes";
import { ADMIN_KEY } from "./server.ts";

/** Runloop's official client, as it comes: HTTP/2 with prior knowledge, its own retries and time-outs. */
export const runloopClient = (url: string, key = ADMIN_KEY): Runloop => new Runloop({ baseURL: url, bearerToken: key });

/** A devbox with Claude on this axon, whose agent is ready. */
export async function mountClaude(
  client: Runloop,
  axonId: string,
  more: Partial<DevboxCreateParams> = {},
  launchArgs: readonly string[] = [],
): Promise<DevboxView> {
  const mount = { type: "broker_mount", protocol: "claude_json", agent_binary: "claude" } as const;
  const created = await client.devboxes.createAndAwaitRunning({
    mounts: [{ ...mount, axon_id: axonId, launch_args: [...launchArgs] }],
    ...more,
  });
  return created;
}

/** An axon with an agent. */
export async function mountedAxon(client: Runloop, more: Partial<DevboxCreateParams> = {}) {
  const axon = await client.axons.create({ name: "test" });
  return { axon, devbox: await mountClaude(client, axon.id, more) };
}

/** As the SDK's connection publishes. */
export const publishUser = (
  client: Runloop,
  axonId: string,
  event_type: string,
  payload: unknown,
  requestId?: string,
) =>
  client.axons.publish(
    axonId,
    { event_type, origin: "USER_EVENT", source: "claude-sdk-client", payload: JSON.stringify(payload) },
    requestId === undefined ? {} : { idempotencyKey: requestId },
  );

export const say = (client: Runloop, axonId: string, content: string) =>
  publishUser(client, axonId, "query", { type: "user", message: { role: "user", content }, parent_tool_use_id: null });

export const control = (client: Runloop, axonId: string, request_id: string, request: Record<string, unknown>) =>
  publishUser(client, axonId, "control_request", { type: "control_request", request_id, request });

export const answer = (client: Runloop, axonId: string, request_id: string, response: Record<string, unknown>) =>
  publishUser(client, axonId, "control_response", {
    type: "control_response",
    response: { subtype: "success", request_id, response },
  });

// biome-ignore lint/suspicious/noExplicitAny: a test reads whatever shape it asserts
export const payloadOf = (event: AxonEventView | undefined): any => JSON.parse(event?.payload ?? "null");

/** A subscription that keeps everything from the first byte, so a test may ask late. */
export interface Watcher extends Disposable {
  readonly events: readonly AxonEventView[];
  /** The first event that fits, past or future. Rejects when the stream ends, or after a while. */
  event(fits: (event: AxonEventView) => boolean): Promise<AxonEventView>;
  /** Resolves when the stream has ended, with what ended it. */
  readonly ended: Promise<unknown>;
}

const PATIENCE_MS = 15_000;

export async function watchAxon(client: Runloop, axonId: string, after?: number): Promise<Watcher> {
  const stream = await client.axons.subscribeSse(axonId, after === undefined ? {} : { after_sequence: after });
  const events: AxonEventView[] = [];
  const waiting = new Set<() => void>();
  const read = async (): Promise<unknown> => {
    try {
      for await (const event of stream) {
        events.push(event);
        for (const look of waiting) look();
      }
      return undefined;
    } catch (error) {
      return error;
    }
  };
  const ended = read();
  return {
    events,
    ended,
    event(fits) {
      const { promise, resolve, reject } = Promise.withResolvers<AxonEventView>();
      const look = (): void => {
        const found = events.find(fits);
        if (found !== undefined) resolve(found);
      };
      const seen = (): string => events.map(({ sequence, event_type }) => `${sequence} ${event_type}`).join(", ");
      const timer = setTimeout(() => reject(new Error(`no such event; there are: ${seen()}`)), PATIENCE_MS);
      void ended.then((why) => reject(new Error(`the stream ended: ${String(why)}; there were: ${seen()}`)));
      waiting.add(look);
      look();
      return promise.finally(() => {
        clearTimeout(timer);
        waiting.delete(look);
      });
    },
    [Symbol.dispose]() {
      stream.controller.abort();
    },
  };
}

/** Waits for an event of this type, the newest request of the agent for one. */
export const ofType = (event_type: string, origin?: string) => (event: AxonEventView) =>
  event.event_type === event_type && (origin === undefined || event.origin === origin);
