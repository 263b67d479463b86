import { type ClientFrame, type ServerFrame, SUBPROTOCOL } from "../protocol/frames.ts";
import { type BackoffOptions, backoffMs } from "./backoff.ts";
import { closedError, failureOf, PatchbayError } from "./errors.ts";
import { parseServerFrame } from "./server-frame.ts";

type Welcome = Extract<ServerFrame, { type: "welcome" }>;

/** What the connection is doing, for whoever wants to show it. */
export type Status =
  | { readonly state: "idle" }
  | { readonly state: "connecting" }
  | { readonly state: "open"; readonly welcome: Welcome }
  | { readonly state: "waiting"; readonly retryInMs: number; readonly reason: string }
  | { readonly state: "closed"; readonly error: PatchbayError };

export interface ConnectionOptions {
  /** The address of a new socket, a ticket included where one is used. */
  address(): string | Promise<string>;
  /** The token of the first frame, or undefined when the address or a cookie authenticates. */
  token(): string | undefined | Promise<string | undefined>;
  /** Asked after a try that never was welcomed: the refusal that trying again cannot change, if that is why. */
  probe(): Promise<PatchbayError | undefined>;
  readonly WebSocket: typeof WebSocket;
  readonly backoff: BackoffOptions;
  /** How long a socket may take from its start to `welcome`. */
  readonly welcomeTimeoutMs: number;
  readonly onStatus: (status: Status) => void;
  /** A welcomed socket: say again what the server has to know. */
  readonly onOpen: () => void;
  /** A frame, and the length of its text. */
  readonly onFrame: (frame: ServerFrame, length: number) => void;
  /** The socket is gone; another follows unless onClosed comes. */
  readonly onLost: (closeCode: number) => void;
  /** For good. Called once. */
  readonly onClosed: (error: PatchbayError) => void;
}

/** One socket at a time, for as long as it is wanted. */
export interface Connection {
  /** Starts connecting unless it has. */
  start(): void;
  /** Sends if the socket is open and welcomed; else nothing: what matters is said again in onOpen. */
  send(frame: ClientFrame): void;
  /** Tries at once if it is waiting. */
  wake(): void;
  /** Gives the socket up and comes back with a fresh one. */
  bounce(reason: string): void;
  close(): void;
}

type Phase =
  | { readonly name: "idle" }
  | { readonly name: "connecting"; readonly abandon: () => void }
  | { readonly name: "open"; readonly socket: WebSocket; readonly abandon: () => void }
  | { readonly name: "waiting"; readonly timer: ReturnType<typeof setTimeout> }
  | { readonly name: "closed" };

/** Close codes 4500 to 4999 mean: do not come back (contract 5). */
const isFinal = (code: number): boolean => code >= 4500 && code <= 4999;
const FINAL_CODES: Readonly<Record<number, string>> = { 4501: "expired", 4502: "unauthenticated", 4503: "forbidden" };

function refusalOf(code: number, reason: string, said: PatchbayError | undefined): PatchbayError {
  if (said !== undefined) return said;
  const message = reason === "" ? `The server closed the connection for good (${code}).` : reason;
  return new PatchbayError({ code: FINAL_CODES[code] ?? "closed", message, retry: false });
}

/** Keeps one authenticated socket alive: heartbeats, coming back with jitter, and the difference between "later" and "never". */
export function createConnection(options: ConnectionOptions): Connection {
  let phase: Phase = { name: "idle" };
  let attempt = 0;

  function closeFor(error: PatchbayError): void {
    if (phase.name === "closed") return;
    phase = { name: "closed" };
    options.onStatus({ state: "closed", error });
    options.onClosed(error);
  }

  function waitAndRetry(reason: string): void {
    const retryInMs = backoffMs(attempt++, Math.random(), options.backoff);
    phase = { name: "waiting", timer: setTimeout(() => void open(), retryInMs) };
    options.onStatus({ state: "waiting", retryInMs, reason });
  }

  async function afterRefusedTry(reason: string): Promise<void> {
    const mine: Phase = { name: "connecting", abandon: () => {} };
    phase = mine;
    const refusal = await options.probe();
    if (phase !== mine) return;
    if (refusal === undefined) waitAndRetry(reason);
    else closeFor(refusal);
  }

  async function open(): Promise<void> {
    let abandoned = false;
    const mine: Phase = {
      name: "connecting",
      abandon: () => {
        abandoned = true;
      },
    };
    phase = mine;
    options.onStatus({ state: "connecting" });
    try {
      const [address, token] = await Promise.all([options.address(), options.token()]);
      if (!abandoned) listen(new options.WebSocket(address, SUBPROTOCOL), token);
    } catch (cause) {
      if (!abandoned) waitAndRetry(cause instanceof Error ? cause.message : String(cause));
    }
  }

  function listen(socket: WebSocket, token: string | undefined): void {
    let said: PatchbayError | undefined;
    let beat: ReturnType<typeof setInterval> | undefined;
    let silentBeats = 0;
    const patience = setTimeout(() => gone(1006, "no welcome in time"), options.welcomeTimeoutMs);

    function abandon(): void {
      clearTimeout(patience);
      clearInterval(beat);
      socket.onopen = socket.onmessage = socket.onclose = socket.onerror = null;
      // An error after this belongs to nobody, yet without a listener Node would report it.
      socket.onerror = () => {};
      socket.close();
    }

    function gone(code: number, reason: string): void {
      const welcomed = phase.name === "open";
      abandon();
      if (welcomed) options.onLost(code);
      if (phase.name === "closed") return;
      if (isFinal(code)) closeFor(refusalOf(code, reason, said));
      else if (welcomed) waitAndRetry(reason || `connection lost (${code})`);
      else void afterRefusedTry(reason || `no connection (${code})`);
    }

    function tick(): void {
      // Counted in beats, not in time: in a hidden tab timers are late, and that is no sign of a dead line.
      if (silentBeats >= 2) return gone(1006, "nothing heard for two heartbeats");
      silentBeats++;
      socket.send('{"type":"ping"}');
    }

    function frame(data: unknown): void {
      silentBeats = 0;
      const parsed = parseServerFrame(data);
      if (parsed === undefined) return;
      if (parsed.type === "welcome") {
        clearTimeout(patience);
        beat ??= setInterval(tick, parsed.heartbeat_ms);
        phase = { name: "open", socket, abandon };
        options.onStatus({ state: "open", welcome: parsed });
        options.onOpen();
        return;
      }
      // Only what was asked for counts as success: a server that welcomes and closes at once is still backed off from.
      if (parsed.type !== "error") attempt = 0;
      else if (parsed.id === undefined && parsed.session_id === undefined) said = failureOf(parsed);
      options.onFrame(parsed, String(data).length);
    }

    phase = { name: "connecting", abandon };
    socket.onopen = () => {
      if (token !== undefined) socket.send(JSON.stringify({ type: "auth", token } satisfies ClientFrame));
    };
    socket.onmessage = (message) => frame(message.data);
    socket.onclose = (event) => gone(event.code, event.reason);
    socket.onerror = () => {};
  }

  return {
    start() {
      if (phase.name === "idle") void open();
    },
    send(frame) {
      if (phase.name === "open") phase.socket.send(JSON.stringify(frame));
    },
    wake() {
      if (phase.name !== "waiting") return;
      clearTimeout(phase.timer);
      void open();
    },
    bounce(reason) {
      if (phase.name !== "open") return;
      phase.abandon();
      options.onLost(1006);
      waitAndRetry(reason);
    },
    close() {
      if (phase.name === "waiting") clearTimeout(phase.timer);
      if (phase.name === "connecting" || phase.name === "open") phase.abandon();
      closeFor(closedError());
    },
  };
}
