import type { JsonObject } from "../../protocol/json.ts";
import { BrokerError } from "../../protocol/problems.ts";
import type { HostRuns, Owner } from "./host.ts";
import type { HostedRun } from "./hosted-run.ts";
import { type Message, NO_BYTES, sendMessage } from "./messages.ts";
import {
  channelOf,
  numberOf,
  packTranscript,
  patienceOf,
  placeOf,
  problemOf,
  startRequestOf,
  textOf,
  unpackTranscript,
} from "./requests.ts";

/** An answer, and what follows it on the link. */
interface Answer {
  readonly json: JsonObject;
  readonly attachment?: Buffer;
  readonly afterwards?: () => void;
}

/** Carries out a server's call and answers it. Never rejects: a fault of ours ends the link. */
export async function answerCall(owner: Owner, id: number, message: Message, runs: HostRuns): Promise<void> {
  try {
    const carriedOut = runs.during(carryOut(owner, message, runs));
    const answer: Answer = await carriedOut.catch((error: unknown) => ({ json: problemOf(error) }));
    const sent = sendMessage(owner.link, "answer", id, answer.json, answer.attachment ?? NO_BYTES);
    answer.afterwards?.();
    await sent;
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : new Error(String(error)));
    owner.link.destroy();
  }
}

async function carryOut(owner: Owner, { json, attachment }: Message, runs: HostRuns): Promise<Answer> {
  const method = textOf(json, "method");
  switch (method) {
    case "start": {
      const channel = channelOf(json);
      const run = await runs.start(startRequestOf(json["request"]));
      return { json: { ...run.describe() }, afterwards: () => void bind(owner, channel, run) };
    }
    case "join":
      return join(owner, json, runs);
    case "forget":
      return forget(owner, textOf(json, "run"), runs);
    case "stop":
      runs.get(textOf(json, "run"))?.stop(patienceOf(json));
      return { json: {} };
    default:
      return fileCall(method, json, attachment, runs);
  }
}

/** With `after` the output begins to flow from there. */
async function join(owner: Owner, json: JsonObject, runs: HostRuns): Promise<Answer> {
  const channel = channelOf(json);
  const run = runs.get(textOf(json, "run"));
  if (run === undefined) return { json: { known: false } };
  const known = { known: true, ...run.describe() };
  if (json["after"] === undefined) return { json: known, afterwards: () => void bind(owner, channel, run) };
  const { offset, line } = await run.locate(numberOf(json, "after"));
  const flow = (): void => {
    if (bind(owner, channel, run)) run.deliver(offset);
  };
  return { json: { ...known, from: line }, afterwards: flow };
}

async function forget(owner: Owner, id: string, runs: HostRuns): Promise<Answer> {
  for (const [channel, { run }] of owner.channels) if (run === id) owner.channels.delete(channel);
  await runs.forget(id);
  return { json: {} };
}

/** False when another server has taken over while the call was carried out: the run is that one's to bind. */
function bind(owner: Owner, channel: number, run: HostedRun): boolean {
  if (owner.isGone()) return false;
  const before = owner.channels.get(channel);
  if (before !== run) before?.unbind();
  owner.channels.set(channel, run);
  run.bind(owner.link, channel);
  return true;
}

async function fileCall(method: string, json: JsonObject, attachment: Buffer, runs: HostRuns): Promise<Answer> {
  const place = placeOf(json["place"]);
  switch (method) {
    case "read": {
      const transcript = await runs.files.readTranscript(place, textOf(json, "cliSessionId"));
      if (transcript === undefined) return { json: { known: false } };
      const { files, attachment: bytes } = packTranscript(transcript);
      return { json: { known: true, files }, attachment: bytes };
    }
    case "has":
      return { json: { known: await runs.files.hasTranscript(place, textOf(json, "cliSessionId")) } };
    case "store": {
      const transcript = unpackTranscript(json["files"], attachment);
      await runs.files.writeTranscript(place, textOf(json, "cliSessionId"), transcript);
      return { json: {} };
    }
    case "remove":
      await runs.files.remove(place);
      return { json: {} };
    default:
      throw new BrokerError("bad_request", `The runner does not know the call ${method.slice(0, 80)}.`);
  }
}
