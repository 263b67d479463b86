import { isJsonObject, type JsonObject, stringField } from "../../protocol/json.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { type Frame, FrameFault } from "./frames.ts";
import { helloOf } from "./handshake.ts";
import type { Link } from "./link.ts";
import { readJson } from "./messages.ts";

/** A way to the runner: a fresh link, and the secret that opens it, where the runner wants one. */
export interface Connection {
  readonly link: Link;
  readonly secret?: string;
}

export interface ClientLinkParts {
  readonly name: string;
  readonly epoch: number;
  /** The name of the server's data directory. */
  readonly broker: string;
  /** The runner dials in: it decides when, and one that was refused may come back as another version. */
  readonly isDialledIn?: boolean;
  /** Makes a link, or waits for one to be dialled in. Called again, after a pause, when it rejects or its link ends. */
  readonly connect: (signal: AbortSignal) => Promise<Connection>;
  /** The runner took us. Frames come from then on. */
  readonly up: (link: Link, welcome: JsonObject) => void;
  readonly frame: (frame: Frame) => void;
  readonly drained: () => void;
  /** The link that was up has ended. */
  readonly down: () => void;
  /** The runner does not take us, and never will. */
  readonly refused: (error: BrokerError) => void;
}

/** Keeps a link to a runner up for as long as it is wanted. */
export interface ClientLink {
  /** Ends the link, after what waits has gone out, and makes no further one. */
  close(): Promise<void>;
}

const WELCOME_PATIENCE_MS = 30_000;
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 5000;

export function keepLinked(parts: ClientLinkParts): ClientLink {
  const closing = new AbortController();
  let current: Link | undefined;

  async function run(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (!closing.signal.aborted) {
      try {
        const { link, secret } = await parts.connect(closing.signal);
        current = link;
        if (closing.signal.aborted) link.destroy();
        if (await useLink(link, secret, parts)) pauseMs = FIRST_PAUSE_MS;
      } catch (error) {
        if (error instanceof BrokerError && error.details?.["refused"] === true) {
          parts.refused(error);
          if (parts.isDialledIn !== true) return;
        }
      }
      current = undefined;
      if (parts.isDialledIn !== true) await pause(pauseMs, closing.signal);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
    }
  }

  const ended = run();
  return {
    async close() {
      closing.abort();
      current?.close();
      await ended;
    },
  };
}

/** Resolves when the link has ended: whether it was up. @throws BrokerError runner_unavailable, when the runner refuses */
function useLink(link: Link, secret: string | undefined, parts: ClientLinkParts): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const patience = setTimeout(() => link.destroy(), WELCOME_PATIENCE_MS);
  let isUp = false;
  link.open({
    frame(frame) {
      if (isUp) {
        parts.frame(frame);
        return;
      }
      clearTimeout(patience);
      if (frame.kind === "refused") {
        reject(refusal(parts.name, readJson(frame.body)));
        link.destroy();
      } else if (frame.kind === "welcome") {
        isUp = true;
        parts.up(link, readJson(frame.body));
      } else throw new FrameFault("hello_expected");
    },
    drained: () => parts.drained(),
    closed(fault) {
      clearTimeout(patience);
      if (fault !== undefined) process.emitWarning(`The link to the runner ${parts.name} ended: ${fault.message}`);
      if (isUp) parts.down();
      resolve(isUp);
    },
  });
  const hello = JSON.stringify(helloOf(parts, secret));
  link.send({ kind: "hello", channel: 0, body: Buffer.from(hello, "utf8") });
  return promise;
}

function refusal(name: string, json: JsonObject): BrokerError {
  const reason = stringField(json, "code") ?? "unknown";
  const message = stringField(json, "message") ?? "It did not say why.";
  const details = isJsonObject(json["details"]) ? json["details"] : {};
  return new BrokerError("runner_unavailable", `The runner ${name} refused this server (${reason}). ${message}`, {
    details: { refused: true, reason, ...details },
  });
}

/** With jitter, so that many do not come at once. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms * (0.5 + Math.random() / 2));
  signal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
}
