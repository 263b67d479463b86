import type { Principal } from "../../auth/port.ts";
import type { SessionView } from "../../protocol/events.ts";
import type { Link } from "../../transport/websocket.ts";
import { type ApiContext, scopeOf } from "../context.ts";

const PAGE = 500;

/**
 * Sends the state of every session that the principal may see, then each change. Changes of a session that wait for the socket are
 * merged into the newest, so a slow watcher costs one view a session. Ends with the socket.
 */
export function startWatch(context: ApiContext, link: Link, principal: Principal): void {
  const waiting = new Map<string, SessionView>();
  let sending = false;
  const visible = (view: SessionView): boolean => principal.sessionId === undefined || principal.sessionId === view.id;

  async function send(): Promise<void> {
    if (sending) return;
    sending = true;
    while (waiting.size > 0 && (await link.room())) {
      const [next] = waiting.values();
      if (next === undefined) break;
      waiting.delete(next.id);
      link.send({ type: "session", ...next });
    }
    sending = false;
  }
  function changed(view: SessionView): void {
    if (!visible(view)) return;
    waiting.set(view.id, view);
    void send();
  }
  /** What was there before: a session that changed meanwhile has been told already, and newer. */
  async function list(): Promise<void> {
    const told = new Set<string>();
    const stopNoting = context.sessions.watch(scopeOf(principal), (view) => told.add(view.id));
    let cursor: string | undefined;
    try {
      do {
        const tenant = scopeOf(principal);
        const page = await context.sessions.list({ tenant, limit: PAGE, ...(cursor !== undefined && { cursor }) });
        for (const view of page.sessions) if (!told.has(view.id)) changed(view);
        cursor = page.next;
      } while (cursor !== undefined && !link.closing.aborted);
    } finally {
      stopNoting();
    }
  }
  const stop = context.sessions.watch(scopeOf(principal), changed);
  link.closing.addEventListener("abort", stop);
  list().catch((error: unknown) => context.logger.error({ err: error }, "watch could not list sessions"));
}
