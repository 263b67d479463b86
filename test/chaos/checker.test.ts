import { expect, test } from "vitest";
import { check } from "./checker.ts";
import {
  bodyOf,
  type History,
  type Journal,
  type JournalRecord,
  type SessionHistory,
  type Sight,
  sightOf,
} from "./history.ts";
import type { ViolationKind } from "./violation.ts";

/** A history in which all is well: one turn with a preview and a question, and the probe after it. */
const TURN = "turn-1";
const PROBE = "turn-2";

const LINES = {
  echo: '{"type":"user","uuid":"turn-1"}',
  preview: '{"type":"stream_event","n":1}',
  ask: '{"type":"control_request","request_id":"ask"}',
  text: '{"type":"assistant","text":"hello"}',
  result: '{"type":"result","n":1}',
  result2: '{"type":"result","n":2}',
};

function sight(
  seq: number,
  event_type: string,
  origin: string,
  payload: string,
  more: Record<string, unknown> = {},
): Sight {
  const source = origin === "AGENT_EVENT" ? "agent" : "broker";
  const head = { session_id: "s", seq, event_type, origin, source, timestamp_ms: seq, ...more };
  return sightOf(`${JSON.stringify(head).slice(0, -1)},"payload":${payload}}`);
}

const query = (seq: number, id: string): Sight =>
  sight(seq, "query", "USER_EVENT", `{"uuid":"${id}","message":{"content":"text of ${id}"}}`, {
    command_id: id,
    turn_id: id,
  });

function goodLog(): Sight[] {
  const agent = (seq: number, type: string, line: string, more = {}): Sight =>
    sight(seq, type, "AGENT_EVENT", line, { turn_id: TURN, ...more });
  const system = (seq: number, type: string, payload: object, turn_id = TURN): Sight =>
    sight(seq, type, "SYSTEM_EVENT", JSON.stringify(payload), { turn_id });
  return [
    query(1, TURN),
    system(2, "turn.started", { turn_id: TURN }),
    agent(3, "user", LINES.echo),
    agent(4, "stream_event", LINES.preview, { preview: true }),
    agent(5, "control_request", LINES.ask),
    system(6, "request.opened", { request_id: "ask" }),
    sight(7, "control_response", "USER_EVENT", '{"response":{"request_id":"ask"}}', { command_id: "answer" }),
    system(8, "request.resolved", { request_id: "ask" }),
    agent(9, "assistant", LINES.text),
    agent(10, "result", LINES.result),
    system(11, "turn.completed", { turn_id: TURN, stop_reason: "end_turn" }),
    query(12, PROBE),
    system(13, "turn.started", { turn_id: PROBE }, PROBE),
    agent(14, "result", LINES.result2, { turn_id: PROBE }),
    system(15, "turn.completed", { turn_id: PROBE, stop_reason: "end_turn" }, PROBE),
  ];
}

function goodJournal(): Journal {
  let at = 0;
  const out = (line: string): JournalRecord => ({
    at: ++at,
    dir: "out",
    type: JSON.parse(line).type,
    body: bodyOf(line),
  });
  const into = (type: string, names: object): JournalRecord => ({ at: ++at, dir: "in", type, body: "", ...names });
  const took = (uuid: string): JournalRecord => ({ at: ++at, dir: "took", type: "user", body: "", uuid });
  const records = [
    into("user", { uuid: TURN }),
    took(TURN),
    out(LINES.echo),
    out(LINES.preview),
    { ...out(LINES.ask), request_id: "ask" },
    into("control_response", { request_id: "ask" }),
    out(LINES.text),
    out(LINES.result),
    into("user", { uuid: PROBE }),
    took(PROBE),
    out(LINES.result2),
    // So that no line of interest is the last one, which may not have been printed.
    out('{"type":"stream_event","n":9}'),
  ];
  return { pid: 10, runner: 5, startedAt: 0, others: [], records };
}

function goodHistory(): History {
  const log = goodLog();
  const durable = log.filter(({ preview }) => !preview);
  const visits = [
    { after: 0, sights: log.slice(0, 4) },
    { after: 4, sights: log.slice(4) },
  ];
  const sent = [
    { id: TURN, event_type: "query" as const, names: TURN, text: `text of ${TURN}`, acks: [1], refusals: [] },
    { id: "answer", event_type: "control_response" as const, names: "ask", acks: [7], refusals: [] },
    { id: PROBE, event_type: "query" as const, names: PROBE, text: `text of ${PROBE}`, acks: [12, 12], refusals: [] },
  ];
  const readers = [{ name: "socket", visits, complaints: [] }];
  const session: SessionHistory = { id: "s", log: durable, readers, journals: [goodJournal()], sent, probe: PROBE };
  return { sessions: [session], killedRunners: [], leftBehind: [], stuck: [] };
}

type Editable<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer I)[] ? Editable<I>[] : T[K] };
type Session = Editable<SessionHistory>;

const remove = <T>(items: T[], fits: (item: T) => boolean): void =>
  void items.splice(0, items.length, ...items.filter((item) => !fits(item)));
const copy = (journal: Editable<Journal>): Editable<Journal> => structuredClone(journal);
const everywhere = (session: Session, edit: (sights: Editable<Sight>[]) => void): void => {
  edit(session.log);
  for (const { visits } of session.readers) for (const { sights } of visits) edit(sights);
};

/** Each kind of broken promise, planted by hand. */
const PLANTED: readonly (readonly [
  kind: ViolationKind,
  how: string,
  plant: (session: Session, history: Editable<History>) => void,
])[] = [
  [
    "event lost",
    "a reader misses a durable event",
    ({ readers }) => remove(readers[0]?.visits[1]?.sights ?? [], ({ seq }) => seq === 9),
  ],
  [
    "seen twice",
    "a preview comes again after a reconnect",
    ({ readers, log: _log }) => {
      const [first, second] = readers[0]?.visits ?? [];
      const preview = first?.sights.at(-1);
      if (preview !== undefined) second?.sights.unshift(preview);
    },
  ],
  [
    "seen twice",
    "a durable event comes twice",
    ({ readers }) => {
      const sights = readers[0]?.visits[1]?.sights ?? [];
      if (sights[0] !== undefined) sights.splice(1, 0, sights[0]);
    },
  ],
  [
    "out of order",
    "two events change places",
    ({ readers }) =>
      void readers[0]?.visits[1]?.sights.splice(0, 2, ...(readers[0]?.visits[1]?.sights.slice(0, 2).reverse() ?? [])),
  ],
  [
    "number reused",
    "a number is given to another event",
    ({ readers }) => {
      const sights = readers[0]?.visits[1]?.sights ?? [];
      const text = sights.find(({ seq }) => seq === 9);
      if (text !== undefined) sights[sights.indexOf(text)] = { ...text, body: "other" };
    },
  ],
  [
    "number reused",
    "a preview's number is given again after a crash",
    ({ readers, log }) => {
      const other = sight(4, "assistant", "AGENT_EVENT", LINES.text, { turn_id: TURN });
      log.splice(3, 0, other);
      readers.push({ name: "late", visits: [{ after: 3, sights: [other] }], complaints: [] });
    },
  ],
  ["not durable", "a durable event was shown and is not in the log", ({ log }) => remove(log, ({ seq }) => seq === 9)],
  ["complaint", "a cursor is refused", ({ readers }) => void readers[0]?.complaints.push("cursor_ahead")],
  [
    "agent line lost",
    "a line of the agent is nowhere",
    (session) => everywhere(session, (sights) => remove(sights, ({ seq }) => seq === 9)),
  ],
  [
    "agent line unknown",
    "a byte of a line is changed",
    (session) =>
      everywhere(session, (sights) =>
        sights.forEach((one, index) => {
          if (one.seq === 9) sights[index] = { ...one, body: bodyOf(`${LINES.text} `) };
        }),
      ),
  ],
  [
    "agent line moved",
    "a line of the agent stands twice",
    (session) =>
      everywhere(session, (sights) => {
        const first = sights.find(({ seq }) => seq === 9);
        const at = sights.findIndex(({ seq }) => seq === 10);
        if (first !== undefined && at >= 0) sights.splice(at + 1, 0, { ...first, seq: 10.5 });
      }),
  ],
  [
    "two agents",
    "a second process began while the first lived",
    ({ journals }) => {
      const [first] = journals;
      if (first !== undefined) journals.push({ ...copy(first), pid: 11, startedAt: 5, others: [10], records: [] });
    },
  ],
  [
    "two agents",
    "a process works on after the next one began",
    ({ journals }) => {
      const [first] = journals;
      if (first !== undefined) journals.push({ ...copy(first), pid: 11, startedAt: 6, records: [] });
    },
  ],
  [
    "message given twice",
    "a message comes twice to one process",
    ({ journals }) => {
      const records = journals[0]?.records ?? [];
      if (records[0] !== undefined) records.push({ ...records[0], at: 50 });
    },
  ],
  [
    "message given twice",
    "a message that a dead process had taken goes to the next one",
    ({ journals }) => {
      const [first] = journals;
      if (first?.records[0] !== undefined)
        journals.push({ ...copy(first), pid: 11, startedAt: 100, records: [{ ...first.records[0], at: 101 }] });
    },
  ],
  [
    "message not given",
    "a turn completes that no agent had",
    ({ journals }) => remove(journals[0]?.records ?? [], ({ dir, uuid }) => dir === "in" && uuid === TURN),
  ],
  [
    "answer given twice",
    "two answers reach the agent",
    ({ journals }) => {
      const records = journals[0]?.records ?? [];
      const answer = records.find(({ type, dir }) => type === "control_response" && dir === "in");
      if (answer !== undefined) records.push({ ...answer, at: 50 });
    },
  ],
  [
    "command lost",
    "an acknowledged command is not there",
    (session) => everywhere(session, (sights) => remove(sights, ({ command_id }) => command_id === TURN)),
  ],
  ["command applied twice", "a command is there twice", ({ log }) => void log.push({ ...query(20, TURN) })],
  ["command moved", "two acknowledgements name two places", ({ sent }) => void sent[0]?.acks.push(3)],
  [
    "command changed",
    "a message has another text",
    ({ sent }) => {
      if (sent[0] !== undefined) sent[0].text = "something else";
    },
  ],
  [
    "refused command applied",
    "a refused command is there",
    ({ sent }) => {
      if (sent[0] !== undefined) Object.assign(sent[0], { acks: [], refusals: ["bad_request"] });
    },
  ],
  [
    "command without end",
    "an answer settles nothing",
    (session) => everywhere(session, (sights) => remove(sights, ({ event_type }) => event_type === "request.resolved")),
  ],
  [
    "turn ended twice",
    "a turn has two ends",
    ({ log }) => void log.push(sight(20, "turn.failed", "SYSTEM_EVENT", `{"turn_id":"${TURN}"}`, { turn_id: TURN })),
  ],
  [
    "turn without end",
    "a turn has no end",
    (session) => everywhere(session, (sights) => remove(sights, ({ seq }) => seq === 11)),
  ],
  [
    "event after its turn",
    "a line belongs to a turn that has ended",
    ({ log }) =>
      void log.push(sight(20, "assistant", "AGENT_EVENT", '{"type":"stream_event","n":9}', { turn_id: TURN })),
  ],
  [
    "no further turn",
    "the session is wedged",
    (session) => everywhere(session, (sights) => remove(sights, ({ seq }) => seq === 15)),
  ],
  [
    "message given twice",
    "the model of a real CLI is told it twice in one conversation",
    (session) => {
      session.told = [`${TURN} ${PROBE}`, `${TURN} ${PROBE} ${TURN}`];
    },
  ],
  [
    "message not given",
    "the model of a real CLI is never told it",
    (session) => {
      session.told = [PROBE];
    },
  ],
  ["left behind", "a process stays", (_session, history) => void history.leftBehind.push("process 1")],
  ["stuck", "something did not come", (_session, history) => void history.stuck.push("a turn")],
];

test("a history in which all is well passes", () => {
  expect(check(goodHistory())).toEqual([]);
  const { sessions, ...rest } = goodHistory();
  const real = sessions.map((session) => ({ ...session, journals: [], told: [TURN, `${TURN} ${PROBE}`] }));
  expect(check({ ...rest, sessions: real })).toEqual([]);
});

test.each(PLANTED)("%s: %s", (kind, _how, plant) => {
  const history: Editable<History> = structuredClone(goodHistory()) as Editable<History>;
  const [session] = history.sessions;
  if (session === undefined) throw new Error("no session");
  plant(session, history);
  expect(check(history as History).map((violation) => violation.kind)).toContain(kind);
});
