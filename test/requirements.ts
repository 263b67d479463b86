/** A promise that tests cite by its id. `knownGap` says why nothing proves it yet; such an entry must not be cited. */
export interface Requirement {
  readonly source: string;
  readonly behaviour: string;
  readonly knownGap?: string;
}

const promise = (source: string, behaviour: string): Requirement => ({ source, behaviour });

/** Every named promise: contract section 6, and the tags of PROTOCOL.md. */
export const REQUIREMENTS = {
  "P4-BYTES": promise(
    "contract 6.4",
    "The payload of an AGENT_EVENT is the agent's line byte for byte, types unknown to us included",
  ),
  "AGENT-NOISE": promise("PROTOCOL.md 2", "Output that is not one JSON object in UTF-8 is never an AGENT_EVENT"),
  "AGENT-LINE-LIMIT": promise("PROTOCOL.md 2", "A line over the limit"),
  "P1-ORDER": promise("contract 6.1", "Events of a session are totally ordered by seq"),
  "P1-COMPLETE": promise(
    "contract 6.1",
    "No event that is not a preview is ever missing between the cursor a reader started from and the last event it has seen",
  ),
  "P2-DURABLE-FIRST": promise("contract 6.2", "An event that is not a preview is on disk before anyone is shown it"),
  "LOG-NUMBERS": promise("PROTOCOL.md 3", "A number is never used twice and never goes back, over restarts too"),
  "LOG-PREVIEW": promise("PROTOCOL.md 3", "A preview has a number like every event and is shown in its place"),
  "TURN-PARTIAL": promise(
    "PROTOCOL.md 3",
    "If a turn dies in the middle of a message, the text that the previews had shown so far is appended as a durable turn",
  ),
  "LOG-GAP": promise("PROTOCOL.md 3", "When retention has removed what a reader asks for, it is told"),
  "LOG-KILL9": promise(
    "PROTOCOL.md 3",
    "After kill -9 of the server at any instant every acknowledged command and every event shown before is there",
  ),
  "WS-AUTH": promise("PROTOCOL.md 4", "A socket without a header, ticket or cookie has 10 s to send its auth frame"),
  TICKETS: promise("PROTOCOL.md 4", "POST /v1/tickets {session_id?, roles?, ttl_s?} gives a ticket"),
  KEYS: promise("PROTOCOL.md 4", "Keys are stored hashed and shown once"),
  REGISTER: promise(
    "PROTOCOL.md 5.4",
    "Hooks and MCP servers of clients are merged into the one initialize, routed to their owner, handed over, and block nobody",
  ),
  ROLES: promise("PROTOCOL.md 4", "Roles form a set"),
  "ORIGIN-HOST": promise("PROTOCOL.md 4", "Every route, upgrade and stream checks Origin"),
  "P9-FOREIGN-404": promise(
    "contract 6.9",
    "A session that is another tenant's, was purged, or never existed is the same not_found",
  ),
  "WS-FRAMES": promise(
    "PROTOCOL.md 5.2",
    "A frame that is malformed, unknown or refused gets an error frame that names the field",
  ),
  "WS-SUBSCRIBE": promise("PROTOCOL.md 5.2", "subscribed comes before the first event of its subscription"),
  "WS-LIMITS": promise("PROTOCOL.md 5.2", "A query may be 32 MiB, anything else 1 MiB"),
  "WS-HEARTBEAT": promise("PROTOCOL.md 5.2", "The server pings every heartbeat_ms"),
  "P8-SLOW": promise("contract 6.8", "Nobody waits for a slow reader"),
  DRAIN: promise(
    "PROTOCOL.md 5.3",
    "A server that shuts down turns /readyz to 503, closes sockets with 4002, ends SSE streams, stops or leaves its agents in order, and exits within 10 s",
  ),
  IDEMPOTENCY: promise(
    "PROTOCOL.md 6",
    "A command sent again under its id, over any transport and after any restart, is applied once",
  ),
  "P3-ONCE": promise(
    "contract 6.3",
    "An acknowledged command is durable, and it ends in its effect or in an event that names it",
  ),
  "P5-NO-RAW-STDIN": promise("contract 6.5", "A command is parsed, checked and written anew"),
  "TURN-QUEUE": promise("PROTOCOL.md 6.1", "delivery"),
  "TURN-ATTRIBUTION": promise(
    "PROTOCOL.md 6.1",
    "Each turn has exactly one terminal event, after the last event of its content",
  ),
  "CONTROL-IDS": promise("PROTOCOL.md 6.2", "The request_id is kept, if this session never used it"),
  "TURN-INTERRUPT": promise("PROTOCOL.md 6.2", "{subtype"),
  "SESSION-INITIALIZE": promise("PROTOCOL.md 6.2", "initialize is sent once per process, by the broker"),
  "P6-ONE-ANSWER": promise("contract 6.6", "The first valid answer wins and is appended"),
  "REQUEST-VALID": promise(
    "PROTOCOL.md 6.3",
    "An answer that does not fit its request is invalid_answer and the request stays open",
  ),
  "REQUEST-SETTLED": promise("PROTOCOL.md 6.3", "An answer to a request that was cancelled or lost is request_settled"),
  POLICY: promise(
    "PROTOCOL.md 6.5",
    "Before a request of the agent is offered to anyone, the policies of its tenant and of its session are asked",
  ),
  "SESSION-RESUME": promise("PROTOCOL.md 8", "A dead agent is noticed within a second"),
  "SESSION-CLEAR": promise("PROTOCOL.md 8", "The CLI's own session id changes"),
  "SESSION-RECOVER": promise("PROTOCOL.md 8", "Where the agents went with the server"),
  "SERVER-OUTLIVED": promise("PROTOCOL.md 8", "A runner outlives its server"),
  "DIAL-IN": promise("PROTOCOL.md 12", "lives on a runner of its tenant that has all of these labels"),
  "RUNNER-LINK": promise("PROTOCOL.md 12", "The runner dials again for ever"),
  "RUNNER-AWAY": promise("PROTOCOL.md 12", "A runner that has not been linked for a second"),
  "RUNNER-RESTART": promise("PROTOCOL.md 12", "A server that starts waits 10 s for the runner"),
  "RUNNER-IDENTITY": promise("PROTOCOL.md 12", "Tenant and name are a runner's identity"),
  "RUNNER-KEY": promise("PROTOCOL.md 12", "A missing, wrong, expired or revoked key"),
  CHAOS: promise("PROTOCOL.md 8", "All of this holds while servers, runners and agents are killed"),
  "P7-ONE-AGENT": promise(
    "contract 6.7",
    "Of one session at most one agent has a process that receives input, whatever arrives at the same time",
  ),
  "SESSION-HIBERNATE": promise("PROTOCOL.md 8", "An idle session's process is stopped after"),
  "SESSION-SLOTS": promise("PROTOCOL.md 8", "Agents live and start within limits"),
  "TURN-STALLED": promise("PROTOCOL.md 8", "A running turn that says nothing for"),
  "AGENT-CRASH-LOOP": promise("PROTOCOL.md 8", "Crashes in a row"),
  "P3-MESSAGE-ONCE": promise("PROTOCOL.md 8", "Which messages a dead process had taken"),
  "AGENT-STOP": promise("PROTOCOL.md 8", "An agent is stopped by a ladder"),
  "AGENT-SPAWN-FAILS": promise(
    "PROTOCOL.md 8",
    "An agent that cannot start, dies at once or stops reading fails its own session only",
  ),
  "HTTP-ERRORS": promise("PROTOCOL.md 9", "Every failure is {error"),
  HTTP2: promise("PROTOCOL.md 9", "The port speaks HTTP/1.1, WebSocket and HTTP/2"),
  "HTTP-PAGES": promise(
    "PROTOCOL.md 9",
    "GET …/events?after=&limit=&event_type= gives {events, head, next}, ascending",
  ),
  "SSE-STREAM": promise("PROTOCOL.md 9", "GET …/events/stream?after="),
  AUDIT: promise(
    "PROTOCOL.md 9",
    "Every answer, policy decision, control message and mode change, every key and ticket, every end and purge of a session has a row in the audit record",
  ),
  WEBHOOKS: promise(
    "PROTOCOL.md 9.1",
    "A delivery is queued in the transaction of its event and made at least once, in order, signed; a link in it answers its request once",
  ),
  "NOT-AVAILABLE": promise(
    "PROTOCOL.md 9",
    "What the contract names and this version does not serve answers not_available",
  ),
  FORK: promise("PROTOCOL.md 9", "A fork is a new session that goes on with another one's conversation"),
  PURGE: promise("PROTOCOL.md 9", "A purge removes log, transcript, folders and every row of the session"),
  RETENTION: promise("PROTOCOL.md 9", "Retention removes the oldest events, and never what is still needed"),
  "AGENT-ARGS": promise("PROTOCOL.md 9", "agent"),
  "SESSION-OPTIONS": promise(
    "PROTOCOL.md 9",
    "What a host gives its agent are options of the session, and their credentials are in no list of processes",
  ),
  TRANSCRIPT: promise("PROTOCOL.md 9", "GET …/transcript is what went over the agent's stdin and stdout"),
  "AGENT-CWD": promise(
    "PROTOCOL.md 9",
    "cwd is relative to the tenant's folder and stays inside it, whatever links and dots it is made of",
  ),
  "AGENT-ENV": promise("PROTOCOL.md 9", "The agent's environment is made from nothing"),
  "CLIENT-RESUME": promise(
    "PROTOCOL.md 11",
    "patchbay/client reconnects by itself with its cursor and never repeats or misses an event that is not a preview",
  ),
  "CLIENT-RESEND": promise("PROTOCOL.md 11", "It sends unacknowledged commands again, under their ids"),
  "CLIENT-REQUESTS": promise(
    "PROTOCOL.md 11",
    "It offers each open request once, and says when somebody else has answered",
  ),
  "CLIENT-TURNS": promise("PROTOCOL.md 11", "send"),
  "CLI-SERVE": promise(
    "PROTOCOL.md 11",
    "patchbay serve prints one line to click, --json one JSON line {url, pid, version}",
  ),
  "CLI-RUN": promise(
    "PROTOCOL.md 11",
    "patchbay run streams the text, asks on the terminal, approves nothing by default, and exits 0 only if the turn completed",
  ),
  "CLI-DOCTOR": promise(
    "PROTOCOL.md 11",
    "patchbay doctor says of each thing it needs whether it is there and what to do",
  ),
  CONFIG: promise("PROTOCOL.md 11", "An unknown PATCHBAY_* name or a wrong value stops the start and is named"),
  "DATA-DIR": promise("PROTOCOL.md 11", "A data directory is held by one server"),
  "RUNLOOP-A1": promise("PROTOCOL.md 13", "HTTP/2 with prior knowledge, HTTP/1.1 and WebSocket meet on one port"),
  "RUNLOOP-PUBLISH": promise("PROTOCOL.md 13", "An axon without an agent keeps and shows what is published"),
  "RUNLOOP-A4": promise(
    "PROTOCOL.md 13",
    "The x-request-id of a publish, or of the creation of an axon or devbox, is its idempotency key",
  ),
  "RUNLOOP-A5": promise("PROTOCOL.md 13", "Sequences ascend; numbers may be absent"),
  "RUNLOOP-EVENTS": promise("PROTOCOL.md 13", "Pages, subscriptions and the native WebSocket agree"),
  "RUNLOOP-A6": promise("PROTOCOL.md 13", "A subscription's headers are sent at once"),
  "RUNLOOP-A7": promise("PROTOCOL.md 13", "A server that stops ends a subscription with the in-band code 408"),
  "RUNLOOP-A8": promise("PROTOCOL.md 13", "When the agent dies, its open turn ends with an AGENT_EVENT result"),
  "RUNLOOP-A9": promise(
    "PROTOCOL.md 13",
    "A request that was withdrawn, expired, lost, or decided by a policy shows as answered",
  ),
  "RUNLOOP-A10": promise("PROTOCOL.md 13", "The first valid answer of a principal that may answer counts"),
  "RUNLOOP-A11": promise("PROTOCOL.md 13", "A payload has up to 4 MiB of UTF-8"),
  "RUNLOOP-A11B": promise("PROTOCOL.md 13", "An empty body that says it is JSON is taken everywhere"),
  "RUNLOOP-A12": promise("PROTOCOL.md 13", "wait_for_status holds for at most 30 s, then answers 408"),
  "RUNLOOP-A13": promise("PROTOCOL.md 13", "What of a devbox is not served answers 501"),
  "RUNLOOP-A14": promise(
    "PROTOCOL.md 13",
    "Turns run one after the other; turn.completed follows the last event of its turn's content",
  ),
  "RUNLOOP-FLOW": promise("PROTOCOL.md 13", "The official client runs unmodified against the real CLI"),
  "RUNLOOP-CONNECTION": promise("PROTOCOL.md 13", "One connection object of such a client lives through reloads"),
} as const satisfies Record<string, Requirement>;
