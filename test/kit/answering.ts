import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { IncomingRequest } from "../../src/client/index.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { ADMIN_KEY, type E2e } from "./e2e-broker.ts";
import { type Answer, callServer } from "./server.ts";
import type { Watched } from "./watched-session.ts";

/** A way for a person's program to answer the agent. */
export interface Way {
  readonly name: string;
  /** Answers, and holds that the answer was taken. */
  answer(e2e: E2e, watched: Watched, request: IncomingRequest, response: JsonObject): Promise<void>;
  interrupt(e2e: E2e, watched: Watched): Promise<void>;
}

const call = (e2e: E2e, watched: Watched, method: string, path: string, body?: unknown): Promise<Answer> =>
  callServer(e2e.url, method, `/v1/sessions/${watched.session.id}${path}`, {
    key: ADMIN_KEY,
    ...(body !== undefined && { body }),
  });

/** A command by plain HTTP, whatever comes of it. */
const postCommand = (e2e: E2e, watched: Watched, event_type: string, payload: JsonObject): Promise<Answer> =>
  call(e2e, watched, "POST", "/commands", { id: randomUUID(), event_type, payload: { type: event_type, ...payload } });

/** An answer by plain HTTP, whatever comes of it. */
export const postAnswer = (
  e2e: E2e,
  watched: Watched,
  { request_id }: Pick<IncomingRequest, "request_id">,
  response: JsonObject,
): Promise<Answer> =>
  postCommand(e2e, watched, "control_response", { response: { subtype: "success", request_id, response } });

/** What `GET …/requests` lists. */
export async function listedRequests(e2e: E2e, watched: Watched): Promise<readonly JsonObject[]> {
  const { status, body } = await call(e2e, watched, "GET", "/requests");
  expect(status).toBe(200);
  return body.requests;
}

/** The session's policy from now on. */
export async function setPolicy(e2e: E2e, watched: Watched, policy: JsonObject): Promise<void> {
  expect(await call(e2e, watched, "PUT", "/policy", policy)).toMatchObject({ status: 200 });
}

export const WAYS: readonly Way[] = [
  {
    name: "WebSocket",
    async answer(_e2e, _watched, request, response) {
      expect(await request.respond(response)).toMatchObject({ outcome: "accepted" });
    },
    interrupt: async (_e2e, watched) => void (await watched.session.interrupt()),
  },
  {
    name: "plain HTTP",
    async answer(e2e, watched, request, response) {
      const { request_id, kind } = request;
      expect(await listedRequests(e2e, watched)).toContainEqual(expect.objectContaining({ request_id, kind }));
      expect(await postAnswer(e2e, watched, request, response)).toMatchObject({ status: 202 });
    },
    async interrupt(e2e, watched) {
      const payload = { request_id: randomUUID(), request: { subtype: "interrupt" } };
      expect(await postCommand(e2e, watched, "control_request", payload)).toMatchObject({ status: 202 });
    },
  },
];

/** The next request of that kind; a permission that has to come before it is given. */
export async function requestOf(watched: Watched, kind: IncomingRequest["kind"]): Promise<IncomingRequest> {
  for (;;) {
    const request = await watched.request();
    if (request.kind === kind) return request;
    await request.allow();
  }
}

/** The `request.resolved` of a request, seen already or yet to come. */
export async function resolutionOf(
  watched: Watched,
  { request_id }: Pick<IncomingRequest, "request_id">,
): Promise<unknown> {
  const find = () => watched.all("request.resolved").find(({ payload }) => payload.request_id === request_id);
  await watched.first(`end of ${request_id}`, () => find() !== undefined);
  return find()?.payload;
}
