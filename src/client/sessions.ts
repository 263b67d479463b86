import type { Envelope, SessionState, SessionView } from "../protocol/events.ts";
import type { Cursor } from "../protocol/frames.ts";
import { isJsonObject } from "../protocol/json.ts";
import { BACKOFF_DEFAULTS, backoffMs } from "./backoff.ts";
import { PatchbayError } from "./errors.ts";
import type { Http } from "./http.ts";
import { uuid } from "./uuid.ts";

/** An MCP server that the agent starts (`command`) or calls (`url`). `alwaysLoad`: its tools are never deferred behind a search. */
export type McpServerInput = (
  | {
      readonly type?: "stdio";
      readonly command: string;
      readonly args?: readonly string[];
      readonly env?: Readonly<Record<string, string>>;
    }
  | {
      readonly type: "http" | "sse";
      readonly url: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
) & { readonly alwaysLoad?: boolean };

/** The body of POST /v1/sessions. */
export interface SessionInput {
  readonly agent?: {
    readonly model?: string;
    readonly permission_mode?: string;
    readonly args?: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
    readonly system_prompt?: string;
    readonly append_system_prompt?: string;
    readonly include_partial_messages?: boolean;
    /** Who the agent's commits are by. `attribution: false`: it does not name itself in them. */
    readonly git?: { readonly name: string; readonly email: string; readonly attribution?: boolean };
    /** Exactly these servers, by name; for admins. */
    readonly mcp_servers?: Readonly<Record<string, McpServerInput>>;
    /** The agent keeps what `rewind_files` needs. */
    readonly file_checkpointing?: boolean;
  };
  /** Relative to the tenant's folder; without it the session has a folder of its own. */
  readonly cwd?: string;
  readonly name?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly prompt?: string;
  /** Begins with the history of another session, up to and including the message `at`. */
  readonly resume_from?: { readonly session_id: string; readonly at?: string };
  /** Seconds that an idle agent is kept; 0 = for ever. */
  readonly idle_timeout_s?: number;
  /** What becomes of a turn whose agent dies: it fails (default), or the next process runs it again. */
  readonly on_crash?: "fail" | "continue";
  /** The agent lives on a runner that dials in and has these labels; a session waits for one that is away (default), or gives it up. */
  readonly runner?: { readonly labels?: Readonly<Record<string, string>>; readonly when_away?: "wait" | "fail" };
}

/** The body of POST …/fork. */
export interface ForkInput {
  /** The uuid of a message: the last one of the new session's history. All of it if absent. */
  readonly at?: string;
  readonly name?: string;
  readonly cwd?: string;
}

export interface SessionUpdate {
  readonly name?: string | null;
  readonly idle_timeout_s?: number;
  /** Replaces the whole. */
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface SessionQuery {
  readonly state?: SessionState;
  readonly name?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly limit?: number;
  /** `next` of the page before. */
  readonly cursor?: string;
}

export interface EventPage {
  readonly events: readonly Envelope[];
  readonly head: number;
  readonly next: number;
}

/** The HTTP calls about sessions (contract 4). Each throws PatchbayError. */
export interface SessionCalls {
  /** Retried while the server cannot be reached, under one Idempotency-Key: one call makes one session. */
  create(
    input?: SessionInput,
    options?: { readonly idempotencyKey?: string; readonly signal?: AbortSignal },
  ): Promise<SessionView>;
  /** As `create`: retried, and made once. */
  fork(id: string, input?: ForkInput): Promise<SessionView>;
  get(id: string): Promise<SessionView>;
  list(query?: SessionQuery): Promise<{ readonly sessions: readonly SessionView[]; readonly next?: string }>;
  update(id: string, change: SessionUpdate): Promise<SessionView>;
  end(id: string): Promise<void>;
  purge(id: string): Promise<void>;
  page(
    id: string,
    query: { readonly after?: Cursor; readonly limit?: number; readonly eventType?: string },
  ): Promise<EventPage>;
}

const CREATE_TRIES = 4;

const unexpected = (): PatchbayError =>
  new PatchbayError({ code: "unreachable", message: "The answer is not what a Patchbay server says.", retry: false });

const isView = (value: unknown): value is SessionView =>
  isJsonObject(value) && typeof value["id"] === "string" && typeof value["state"] === "string";
const isList = (value: unknown): value is { sessions: SessionView[]; next?: string } =>
  isJsonObject(value) && Array.isArray(value["sessions"]);
const isPage = (value: unknown): value is EventPage =>
  isJsonObject(value) &&
  Array.isArray(value["events"]) &&
  typeof value["head"] === "number" &&
  typeof value["next"] === "number";

/** Passes a checked body on. @throws PatchbayError unreachable when it is something else */
export function expectBody<T>(value: unknown, is: (value: unknown) => value is T): T {
  if (is(value)) return value;
  throw unexpected();
}

const pathOf = (id: string): string => `/v1/sessions/${encodeURIComponent(id)}`;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export function createSessionCalls(http: Http): SessionCalls {
  async function make(path: string, body: unknown, key: string, signal?: AbortSignal): Promise<SessionView> {
    const headers = { "idempotency-key": key };
    for (let attempt = 0; ; attempt++) {
      try {
        return expectBody(await http("POST", path, { body, headers, signal }), isView);
      } catch (error) {
        const canRetry = error instanceof PatchbayError && error.code === "unreachable" && error.retry;
        if (!canRetry || attempt + 1 >= CREATE_TRIES) throw error;
      }
      await pause(backoffMs(attempt, Math.random(), BACKOFF_DEFAULTS));
      signal?.throwIfAborted();
    }
  }

  return {
    create: (input = {}, options = {}) => make("/v1/sessions", input, options.idempotencyKey ?? uuid(), options.signal),
    fork: (id, input = {}) => make(`${pathOf(id)}/fork`, input, uuid()),
    get: async (id) => expectBody(await http("GET", pathOf(id)), isView),
    async list({ metadata = {}, ...query } = {}) {
      const filters = Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value]);
      return expectBody(
        await http("GET", "/v1/sessions", { query: { ...query, ...Object.fromEntries(filters) } }),
        isList,
      );
    },
    update: async (id, change) => expectBody(await http("PATCH", pathOf(id), { body: change }), isView),
    async end(id) {
      await http("DELETE", pathOf(id));
    },
    async purge(id) {
      await http("DELETE", pathOf(id), { query: { purge: true } });
    },
    async page(id, { after, limit, eventType }) {
      return expectBody(
        await http("GET", `${pathOf(id)}/events`, { query: { after, limit, event_type: eventType } }),
        isPage,
      );
    },
  };
}
