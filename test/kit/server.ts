import { mkdirSync } from "node:fs";
import { type Broker, type BrokerTuning, createBroker } from "../../src/broker.ts";
import type { BrokerOptions } from "../../src/options.ts";
import type { SessionView } from "../../src/protocol/events.ts";
import type { Role } from "../../src/protocol/roles.ts";
import type { NewSession } from "../../src/protocol/sessions.schema.ts";
import { type FakeBehaviour, fakeAgentBinary } from "./fake-agent-spec.ts";
import { makeTempDir } from "./temp-dir.ts";
import { type ConnectOptions, connect, type WsClient } from "./ws-client.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON. Tests say what they expect of it, so it is not typed further. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads whatever shape it asserts
  readonly body: any;
}

export interface CallOptions {
  readonly body?: unknown;
  /** Sent as it is, instead of `body` as JSON. */
  readonly raw?: string | Uint8Array<ArrayBuffer>;
  /** The key to call with (default: the operator's); null = none. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A real server on port 0 with the fake agent, and short ways to talk to it. */
export interface TestServer extends AsyncDisposable {
  readonly broker: Broker;
  readonly url: string;
  readonly adminKey: string;
  readonly dataDir: string;
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** A new key with these roles. */
  key(roles: readonly Role[], tenant?: string): Promise<{ id: string; key: string }>;
  session(input?: NewSession): Promise<SessionView>;
  /** An authenticated socket, welcomed. */
  socket(options?: ConnectOptions & { readonly key?: string }): Promise<WsClient>;
}

export interface ServerOptions {
  readonly options?: Partial<BrokerOptions>;
  readonly tuning?: BrokerTuning;
  readonly behaviour?: FakeBehaviour;
}

export const ADMIN_KEY = "pb_testadmin_0123456789abcdefghijklmnopqrstuvwxyz";

export async function callServer(
  url: string,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Answer> {
  const { body, raw, key = ADMIN_KEY, headers = {} } = options;
  const sent = raw ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await fetch(url + path, {
    method,
    redirect: "manual",
    headers: {
      ...(key !== null && { authorization: `Bearer ${key}` }),
      ...(sent !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    ...(sent !== undefined && { body: sent }),
  });
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.startsWith("application/json") ?? false;
  return { status: response.status, headers: response.headers, text, body: isJson ? JSON.parse(text) : undefined };
}

export async function startServer({ options, tuning, behaviour }: ServerOptions = {}): Promise<TestServer> {
  const folder = makeTempDir();
  const dataDir = `${folder.path}/data`;
  const agents = `${folder.path}/agents`;
  mkdirSync(agents);
  const claudeBin = fakeAgentBinary(agents, behaviour);
  const given = {
    host: "127.0.0.1",
    port: 0,
    dataDir,
    claudeBin,
    adminKey: ADMIN_KEY,
    logLevel: "silent" as const,
    runner: "inline" as const,
  };
  const quick = { eofMs: 500, termMs: 500 };
  const broker = await createBroker(
    { ...given, ...options },
    {
      ...tuning,
      sessions: { stopPatience: quick, closePatience: quick, ...tuning?.sessions },
    },
  );
  const { url } = broker;
  const call: TestServer["call"] = (method, path, one) => callServer(url, method, path, one);
  const made = async (answer: Promise<Answer>) => {
    const { status, text, body } = await answer;
    if (status !== 201) throw new Error(`the server answered ${status}: ${text}`);
    return body;
  };
  return {
    broker,
    url,
    adminKey: ADMIN_KEY,
    dataDir,
    call,
    key: (roles, tenant) =>
      made(call("POST", "/v1/keys", { body: { roles, ...(tenant !== undefined && { tenant }) } })),
    session: (input = {}) => made(call("POST", "/v1/sessions", { body: input })),
    async socket({ key = ADMIN_KEY, ...rest } = {}) {
      const client = await connect(url, { ...rest, headers: { authorization: `Bearer ${key}`, ...rest.headers } });
      await client.next("welcome");
      return client;
    },
    async [Symbol.asyncDispose]() {
      await broker.close();
      folder[Symbol.dispose]();
    },
  };
}
