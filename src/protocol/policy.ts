import type { RequestKind } from "./events.ts";
import type { JsonObject } from "./json.ts";

/** What a rule does with a question of the agent: answer yes, answer no, or leave it to people. */
export type PolicyEffect = "allow" | "deny" | "ask";

/** One rule. All of its conditions must hold; each list holds when one of its entries does (docs/permissions.md). */
export interface PolicyRule {
  /** Unique in its document; decisions name it. */
  readonly id: string;
  readonly effect: PolicyEffect;
  /** Tool names; `*` stands for any characters (`mcp__github__*`). */
  readonly tools?: readonly string[];
  /** Bash only: patterns over the words of each simple command, such as `git status` or `npm test *`. */
  readonly command?: readonly string[];
  /** Globs relative to the session's folder, or absolute ones, over the paths that the tool names. */
  readonly path?: readonly string[];
  /** Globs over the text of fields of the input; all of them must match. */
  readonly input?: Readonly<Record<string, string>>;
  /** Absent: permission for allow; every kind for deny and ask. Never hook and mcp: no policy is asked about them. */
  readonly kinds?: readonly RequestKind[];
  readonly modes?: readonly string[];
  /** A range of agent versions, such as `>=2.1.300 <3`. */
  readonly versions?: string;
  /** What the model is told by a deny. */
  readonly message?: string;
  /** An ask that two different principals must allow. */
  readonly two_approvers?: boolean;
}

/** What becomes of a question that nobody answers. It can be denied or left open, never allowed. */
export interface PolicyExpiry {
  readonly after_s: number;
  readonly effect: "deny" | "leave";
}

/** What an approver's answer may change besides its own request. */
export interface PolicyGrants {
  readonly set_mode?: boolean;
  readonly add_rules?: boolean;
  /** Rules of an answer may be written to settings files in the workspace. The tenant's policy only. */
  readonly stored_rules?: boolean;
}

/** The policy document of a tenant or of a session. */
export interface Policy {
  readonly rules: readonly PolicyRule[];
  /** For what no rule matches. There is no "allow". */
  readonly default: "ask" | "deny";
  readonly expire?: PolicyExpiry;
  readonly grants?: PolicyGrants;
}

/** The documents that apply to one session; an absent one has no rules and the default `ask`. */
export interface PolicyPair {
  readonly tenant?: Policy | undefined;
  readonly session?: Policy | undefined;
}

/** What the agent asks, as far as a policy looks at it. */
export interface PolicyQuestion {
  readonly kind: RequestKind;
  /** Empty when the request names no tool. */
  readonly tool_name: string;
  readonly input: JsonObject;
  /** The session's folder: absolute, with its links resolved. */
  readonly cwd: string;
  /** The agent's permission mode and version; null = not known. */
  readonly mode: string | null;
  readonly version: string | null;
  /** The agent says that only a person may answer (`requires_user_interaction`): no rule can allow it. */
  readonly requires_person?: boolean;
}

/** What a policy says to a question, and which rule says so. */
export interface Verdict {
  readonly effect: PolicyEffect;
  /** `policy:tenant/<rule id>`, `policy:session/<rule id>` or `policy:default`. */
  readonly decided_by: string;
  /** For the model; there for every deny, and only then. */
  readonly message?: string;
  /** How many principals must allow it when people are asked. */
  readonly approvers: 1 | 2;
  /** There for an ask that has a time limit. */
  readonly expire?: { readonly after_ms: number; readonly effect: "deny" | "leave" };
  /** There for an ask whose answer may change more than its own request, without an admin. */
  readonly grants?: PolicyGrants;
}
