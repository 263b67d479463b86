import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { Bystanders } from "./bystanders.ts";
import type { TestServer } from "./server.ts";

/** A command, and the code that it is refused with on every transport. */
export interface RefusedCommand {
  readonly name: string;
  readonly code: string;
  readonly event_type: string;
  readonly payload: unknown;
  readonly id?: string;
  readonly field?: string;
}

/** Sends it over HTTP and over a socket, and holds the two answers against the code. */
export async function expectRefused(
  server: TestServer,
  { id, socket }: Pick<Bystanders, "id" | "socket">,
  one: RefusedCommand,
): Promise<void> {
  const frame = { id: one.id ?? randomUUID(), event_type: one.event_type, payload: one.payload };
  const told = await server.call("POST", `/v1/sessions/${id}/commands`, { body: frame });
  expect(told.body.error, `${one.name}, HTTP`).toMatchObject({ code: one.code, retry: false });
  const refused = await socket.command({ ...frame, session_id: id });
  expect(refused, `${one.name}, WebSocket`).toMatchObject({ type: "error", code: one.code, session_id: id });
  if (one.field === undefined || refused.type !== "error") return;
  expect([told.body.error.details.field, refused.details?.["field"]], one.name).toEqual([one.field, one.field]);
}
