import { Runloop } from "@runloop/api-client";
import type { TestServer } from "./server.ts";

/** Runloop's official client, as it comes: HTTP/2 with prior knowledge, its own retries and time-outs. */
export const runloopClient = (server: Pick<TestServer, "url" | "adminKey">, key = server.adminKey): Runloop =>
  new Runloop({ baseURL: server.url, bearerToken: key });
