import { connect, createView } from "./client.index.js";
import { byId, element, reveal } from "./page-dom.js";
import { showRequest } from "./page-requests.js";

/** Rows and raw lines kept on the page; older ones are in the server's log. */
const KEPT = 2000;

const log = byId("log");
const status = byId("status");
const say = (text) => {
  status.textContent = text;
};

const client = connect({
  url: location.origin,
  onStatus(next) {
    if (next.state === "open") say("Connected.");
    else if (next.state === "waiting") say(`Connection lost; trying again in ${Math.ceil(next.retryInMs / 1000)} s.`);
    else if (next.state === "closed") say(`${next.error.message} The command "patchbay open" prints a fresh link.`);
  },
  onError: (error) => say(error.message),
});

let current;

function atEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < 30;
}

/** Rows of one session. Text that is being streamed grows in its own row, whatever comes after it meanwhile. */
function createRows() {
  let open;
  const add = (className, ...children) => {
    const row = element("div", { className }, ...children);
    log.append(row);
    while (log.childElementCount > KEPT) log.firstElementChild.remove();
    return row;
  };
  const folded = (className, title, text) =>
    add(
      className,
      element("details", {}, element("summary", { textContent: title }), element("pre", { textContent: text })),
    );
  return (item) => {
    const follow = atEnd();
    if (item.kind === "text") {
      open ??= add("text").appendChild(new Text(""));
      open.appendData(reveal(item.text));
    } else if (item.kind === "text_end") open = undefined;
    else if (item.kind === "user") add("user", reveal(item.text));
    else if (item.kind === "note") add("note", reveal(item.text));
    else if (item.kind === "tool") folded("tool", item.name, reveal(JSON.stringify(item.input, undefined, 2)));
    else if (item.kind === "tool_result") folded("tool", item.isError ? "failed" : "result", reveal(item.text));
    else if (item.kind === "turn" && (item.outcome === "failed" || item.text !== "" || item.reason !== "end_turn")) {
      add(`turn ${item.outcome}`, `Turn ${item.outcome}: ${item.reason}. ${reveal(item.text)}`);
    }
    if (follow) log.scrollTop = log.scrollHeight;
  };
}

async function follow(session, signal) {
  const view = createView();
  const show = createRows();
  const raw = [];
  const drawRaw = () => {
    if (byId("raw").open) byId("raw-lines").textContent = raw.join("\n");
  };
  byId("raw").addEventListener("toggle", drawRaw, { signal });
  try {
    for await (const event of session.events({
      signal,
      onGap: (first) => say(`History before ${first} was removed.`),
    })) {
      raw.push(JSON.stringify(event));
      if (raw.length > KEPT) raw.shift();
      drawRaw();
      for (const item of view.push(event)) show(item);
    }
  } catch (error) {
    say(error.message);
  }
}

function attach(id) {
  current?.leave();
  log.replaceChildren();
  byId("requests").replaceChildren();
  byId("raw-lines").textContent = "";
  const session = client.session(id);
  const controller = new AbortController();
  const stopRequests = session.onRequest((request) => showRequest(request, say));
  current = {
    id,
    session,
    leave() {
      stopRequests();
      controller.abort();
    },
  };
  history.replaceState(undefined, "", `/?session=${encodeURIComponent(id)}`);
  byId("composer").hidden = false;
  byId("interrupt").hidden = false;
  drawSessions();
  void follow(session, controller.signal);
}

const sessions = new Map();

function drawSessions() {
  const newest = [...sessions.values()].sort((a, b) => b.created_at_ms - a.created_at_ms);
  const rows = newest.map((view) => {
    const waits = view.open_requests.length > 0 ? " · needs you" : "";
    const small = element("small", { textContent: `${view.state.replace("_", " ")}${waits}` });
    const choose = element("button", { type: "button" }, reveal(view.name ?? view.id), small);
    choose.setAttribute("aria-current", String(view.id === current?.id));
    choose.addEventListener("click", () => attach(view.id));
    return element("li", {}, choose);
  });
  byId("sessions").replaceChildren(...rows);
  const chosen = sessions.get(current?.id);
  byId("title").textContent = chosen === undefined ? "No session chosen" : reveal(chosen.name ?? chosen.id);
  byId("state").textContent =
    chosen === undefined ? "" : `${chosen.state.replace("_", " ")} · $${chosen.usage.cost_usd.toFixed(4)}`;
}

async function watch() {
  for await (const view of client.watch()) {
    sessions.set(view.id, view);
    drawSessions();
  }
}

async function send() {
  const box = byId("message");
  const text = box.value;
  if (text.trim() === "" || current === undefined) return;
  box.value = "";
  try {
    await current.session.send(text).accepted;
  } catch (error) {
    // What was typed since is kept behind it.
    box.value = box.value === "" ? text : `${text}\n${box.value}`;
    say(error.message);
  }
}

byId("send").addEventListener("click", send);
byId("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  void send();
});
byId("interrupt").addEventListener("click", () => {
  current?.session.interrupt().then(
    () => say("Interrupted."),
    (error) => say(error.message),
  );
});
byId("create").addEventListener("click", async () => {
  try {
    attach((await client.createSession()).id);
  } catch (error) {
    say(error.message);
  }
});

watch().catch((error) => say(error.message));
const wanted = new URLSearchParams(location.search).get("session");
if (wanted !== null) attach(wanted);
