import { byId, element, reveal } from "./page-dom.js";

/** A click this soon after a request appeared was meant for something else. */
const ARM_MS = 600;

/**
 * Shows what the agent waits for, above the composer. It never takes the focus, so typing goes on where it was; nothing is decided by
 * a key that was not pressed on one of its own buttons.
 */
export function showRequest(request, say) {
  const card = element("div", { className: "request" });
  card.dataset.requestId = request.request_id;
  const armed = { at: performance.now() + ARM_MS };

  async function decide(answer) {
    if (performance.now() < armed.at) return;
    armed.at = Number.POSITIVE_INFINITY;
    try {
      const answered = await answer();
      if (answered.outcome === "already_answered")
        say(`Answered by ${answered.decidedBy ?? "somebody else"} before you.`);
      if (answered.outcome === "settled") say("Nobody waits for this answer any more.");
    } catch (error) {
      say(error.message);
      armed.at = 0;
    }
  }

  const content = request.kind === "question" ? questionForm(request, decide) : permissionForm(request, decide);
  card.append(...content);
  byId("requests").append(card);
  request.signal.addEventListener("abort", () => {
    card.remove();
    const by = request.signal.reason?.decidedBy;
    say(`Request ${request.signal.reason?.outcome ?? "closed"}${by === undefined ? "" : ` by ${by}`}.`);
  });
}

function button(label, act) {
  const made = element("button", { type: "button", textContent: label });
  made.addEventListener("click", (event) => {
    // A held key repeats its click; only the first press counts.
    if (event.detail > 1) return;
    act();
  });
  return made;
}

function permissionForm(request, decide) {
  const { toolName, input, request: raw } = request;
  const note = element("input", { placeholder: "Why not (the agent reads this)" });
  note.setAttribute("aria-label", "Reason for refusing");
  const allow = button("Allow", () => decide(() => request.allow()));
  const deny = button("Deny", () => decide(() => request.deny(note.value || "The user refused.")));
  return [
    element("strong", { textContent: `${toolName ?? request.subtype} asks for permission` }),
    ...(typeof raw.description === "string" ? [element("div", { textContent: reveal(raw.description) })] : []),
    element("pre", { textContent: describeInput(input) }),
    element("div", { className: "actions" }, allow, note, deny),
  ];
}

/** The exact command or edit: long values as they are, the rest as JSON. */
function describeInput(input) {
  const parts = Object.entries(input).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, undefined, 2);
    return text.includes("\n") ? `${name}:\n${text}` : `${name}: ${text}`;
  });
  return reveal(parts.join("\n"));
}

function questionForm(request, decide) {
  const fields = request.questions.map((question, index) => {
    const kind = question.multiSelect ? "checkbox" : "radio";
    const name = `${request.request_id}-${index}`;
    const choices = question.options.map(({ label, description }) => {
      const box = element("input", { type: kind, name, value: label });
      const text = description === undefined ? label : `${label}: ${description}`;
      return { box, row: element("label", {}, box, ` ${reveal(text)}`) };
    });
    const other = element("input", { placeholder: "Other" });
    other.setAttribute("aria-label", "Other answer");
    const legend = element("legend", { textContent: reveal(question.question) });
    const set = element("fieldset", {}, legend, ...choices.map(({ row }) => row), other);
    const chosen = () => {
      const labels = choices.filter(({ box }) => box.checked).map(({ box }) => box.value);
      return other.value.trim() === "" ? labels : [...(question.multiSelect ? labels : []), other.value.trim()];
    };
    return { question: question.question, set, chosen };
  });
  const send = button("Answer", () => {
    const answers = fields.map(({ question, chosen }) => [question, chosen()]);
    if (answers.every(([, chosen]) => chosen.length > 0)) decide(() => request.answer(Object.fromEntries(answers)));
  });
  const skip = button("Decline to answer", () => decide(() => request.deny("The user declined to answer.")));
  return [
    element("strong", { textContent: "The agent asks" }),
    ...fields.map(({ set }) => set),
    element("div", { className: "actions" }, send, skip),
  ];
}
