import type { JsonObject } from "../../protocol/json.ts";
import { BrokerError } from "../../protocol/problems.ts";
import type { Frame } from "./frames.ts";
import type { Link } from "./link.ts";
import { createMessageJoiner, type Message, type MessageJoiner, NO_BYTES, sendMessage } from "./messages.ts";
import { errorOf, type Method } from "./requests.ts";

/** Calls to a runner over links that come and go. */
export interface ClientCalls {
  /** Asked again over the next link when one breaks. @throws BrokerError: what the runner said, or runner_unavailable when no link comes in time */
  call(method: Method, json: JsonObject, attachment?: Buffer): Promise<Message>;
  /** Over this link only. `answered` is called before any frame that follows the answer; not at all, when the link breaks first. */
  tell(method: Method, json: JsonObject, answered?: (json: JsonObject) => void): void;
  /** @throws FrameFault */
  frame(frame: Frame): void;
  up(link: Link): void;
  down(): void;
  /** Nothing is answered any more. */
  end(error: BrokerError): void;
}

interface Pending {
  readonly method: Method;
  readonly json: JsonObject;
  readonly attachment: Buffer;
  readonly isTied: boolean;
  answered(message: Message): void;
  failed(error: Error): void;
}

export function createClientCalls(name: string, patienceMs: number): ClientCalls {
  const pending = new Map<number, Pending>();
  let joiner: MessageJoiner = createMessageJoiner();
  let link: Link | undefined;
  let nextId = 1;
  let isLate = false;
  let ended: BrokerError | undefined;
  let patience = startPatience();

  function startPatience(): NodeJS.Timeout {
    return setTimeout(() => {
      isLate = true;
      failAll(unavailable(name));
    }, patienceMs).unref();
  }

  function failAll(error: BrokerError): void {
    const failed = [...pending.values()];
    pending.clear();
    for (const { failed: tell } of failed) tell(error);
  }

  function send(id: number, { method, json, attachment }: Pending): void {
    if (link !== undefined) void sendMessage(link, "call", id, { ...json, method }, attachment);
  }

  function add(entry: Pending): void {
    const id = nextId;
    nextId = (nextId % 0xffff_ffff) + 1;
    pending.set(id, entry);
    send(id, entry);
  }

  return {
    call(method, json, attachment = NO_BYTES) {
      if (ended !== undefined) return Promise.reject(ended);
      if (link === undefined && isLate) return Promise.reject(unavailable(name));
      const { promise, resolve, reject } = Promise.withResolvers<Message>();
      const answered = (message: Message): void => {
        const error = errorOf(message.json);
        if (error === undefined) resolve(message);
        else reject(error);
      };
      add({ method, json, attachment, isTied: false, answered, failed: reject });
      return promise;
    },
    tell(method, json, answered = () => {}) {
      if (link === undefined) return;
      const told = (message: Message): void => {
        if (errorOf(message.json) === undefined) answered(message.json);
      };
      add({ method, json, attachment: NO_BYTES, isTied: true, answered: told, failed() {} });
    },
    frame(frame) {
      // What nobody has asked for is not kept: a piece of it could be followed by any number of others.
      if (!pending.has(frame.channel)) return;
      const message = joiner.push(frame);
      if (message === undefined) return;
      const entry = pending.get(frame.channel);
      pending.delete(frame.channel);
      entry?.answered(message);
    },
    up(to) {
      link = to;
      clearTimeout(patience);
      isLate = false;
      joiner = createMessageJoiner();
      for (const [id, entry] of pending) send(id, entry);
    },
    down() {
      link = undefined;
      for (const [id, { isTied }] of pending) if (isTied) pending.delete(id);
      clearTimeout(patience);
      patience = startPatience();
    },
    end(error) {
      ended = error;
      clearTimeout(patience);
      failAll(error);
    },
  };
}

function unavailable(name: string): BrokerError {
  return new BrokerError("runner_unavailable", `The runner ${name} cannot be reached. Try again.`, {
    details: { runner: name },
  });
}
