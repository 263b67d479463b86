import type { RequestKind } from "./events.ts";

/** What a client says that it can answer (contract 5). */
export const CAPABILITIES = ["permissions", "questions", "dialogs", "elicitation", "hooks", "mcp"] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** What a client can answer that says nothing. */
export const DEFAULT_CAPABILITIES: readonly Capability[] = ["permissions", "questions", "dialogs"];

/** One matcher of a hook event, as `initialize` takes it (spec/claude-protocol 3.1); the callback ids are the client's own. */
export interface HookMatcher {
  readonly matcher?: string;
  readonly hookCallbackIds: readonly string[];
  /** In seconds. After it the CLI gives up, and blocks the tool of a PreToolUse. */
  readonly timeout?: number;
}

export type HookMatchers = Readonly<Record<string, readonly HookMatcher[]>>;

/** What a client serves for a session: hooks, and MCP servers that live in it. */
export interface Registration {
  /** Tells two programs of one principal apart. A newer connection of the same owner takes over. */
  readonly owner?: string;
  readonly hooks?: HookMatchers;
  readonly mcp_servers?: readonly string[];
}

/** The capability that a kind of request needs; undefined = whoever may answer, may answer it. */
export function capabilityFor(kind: RequestKind): Capability | undefined {
  switch (kind) {
    case "permission":
    case "plan":
      return "permissions";
    case "question":
      return "questions";
    case "dialog":
      return "dialogs";
    case "elicitation":
      return "elicitation";
    case "hook":
      return "hooks";
    case "mcp":
      return "mcp";
    case "other":
      return undefined;
  }
}
