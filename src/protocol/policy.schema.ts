import { z } from "zod";
import { clientId, parseWith } from "./commands.schema.ts";
import { refuseDeepJson } from "./json.ts";
import type { Policy, PolicyQuestion } from "./policy.ts";
import { requestKind } from "./requests.ts";

const KINDS = ["permission", "question", "plan", "hook", "mcp", "elicitation", "dialog", "other"] as const;
/** Hooks and tools of a client are the session's own wiring: no policy is asked about them. */
const RULED_KINDS = KINDS.filter((kind) => kind !== "hook" && kind !== "mcp");
/** Kinds that a rule can answer with yes: nobody can invent the answer to anything else. */
const ALLOWABLE: readonly string[] = ["permission", "plan"];
const MOST_RULES = 200;
const LONGEST_GLOB_CHARS = 512;
/** A year. */
const LONGEST_EXPIRY_S = 31_536_000;
/** Where a question of a dry run is asked, when it does not say. */
const DRY_RUN_FOLDER = "/workspace";

const list = <T extends z.ZodType>(item: T) => z.array(item).min(1, "must not be empty").max(64);
const glob = z
  .string()
  .min(1)
  .max(LONGEST_GLOB_CHARS)
  .regex(/^[^\p{Cc}]*$/u, "must not contain control characters");
const toolGlob = glob.regex(/^[\w.:*-]+$/, "must be a tool's name, in which * stands for any characters");
const commandGlob = glob
  .refine((text) => text.trim() !== "", "must have words")
  .refine(
    (text) => !/['"`$\\;|&<>(){}~#!\n]/.test(text),
    "is compared with plain words: no quotes, separators, expansions or redirections",
  );
const pathGlob = glob
  .refine((text) => !/[\\~]/.test(text), "must not contain a backslash or ~")
  .refine(
    (text) =>
      !text
        .replace(/^\//, "")
        .split("/")
        .some((part) => ["", ".", ".."].includes(part)),
    "must be plain: no empty part, no . or .., no slash at the end",
  )
  .refine((text) => text.split("/").every((part) => part === "**" || !part.includes("**")), "** must be a whole part");
const versionRange = z
  .string()
  .max(200)
  .regex(/^(?:>=|<=|>|<|=)?\d{1,9}(?:\.\d{1,9}){0,2}(?: (?:>=|<=|>|<|=)?\d{1,9}(?:\.\d{1,9}){0,2})*$/, {
    message: "must be versions with >=, >, <=, < or =, separated by spaces, such as >=2.1.300 <3",
  });

const rule = z
  .strictObject({
    id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be 1 to 64 letters, digits, dots, dashes"),
    effect: z.enum(["allow", "deny", "ask"]),
    tools: list(toolGlob).optional(),
    command: list(commandGlob).optional(),
    path: list(pathGlob).optional(),
    input: z
      .record(z.string().min(1).max(200), z.string().max(LONGEST_GLOB_CHARS))
      .refine((fields) => Object.keys(fields).length > 0, "must not be empty")
      .optional(),
    kinds: list(z.enum(RULED_KINDS)).optional(),
    modes: list(z.string().min(1).max(64)).optional(),
    versions: versionRange.optional(),
    message: z.string().min(1).max(2_000).optional(),
    two_approvers: z.boolean().optional(),
  })
  .superRefine((made, context) => {
    const wrong = (field: string, message: string): void =>
      context.addIssue({ code: "custom", path: [field], message });
    if (made.message !== undefined && made.effect !== "deny") wrong("message", "belongs to a deny");
    if (made.two_approvers !== undefined && made.effect !== "ask") wrong("two_approvers", "belongs to an ask");
    if (made.command !== undefined && made.tools !== undefined && !made.tools.includes("Bash")) {
      wrong("command", "is for Bash, which tools does not name");
    }
    if (made.command !== undefined && made.path !== undefined) wrong("path", "a command has no path; leave one out");
    if (made.effect !== "allow") return;
    if (made.tools === undefined && made.command === undefined) wrong("tools", "an allow must name its tools");
    if (made.kinds?.some((kind) => !ALLOWABLE.includes(kind))) {
      wrong("kinds", `an allow can only be for ${ALLOWABLE.join(" or ")}: nobody can invent another answer`);
    }
    if (made.tools?.includes("AskUserQuestion")) wrong("tools", "nobody can invent the answer to a question");
    if (made.tools?.includes("ExitPlanMode") && !made.kinds?.includes("plan")) {
      wrong("kinds", 'must name "plan" to allow ExitPlanMode');
    }
    // A glob over the whole line would take `git status; rm -rf x` for `git *`.
    if (made.input !== undefined && Object.hasOwn(made.input, "command")) {
      wrong("input", "an allow looks at a command through `command`, which knows its parts");
    }
  });

const policy = z
  .strictObject({
    rules: z.array(rule).max(MOST_RULES).default([]),
    default: z.enum(["ask", "deny"], 'must be "ask" or "deny"; an allow is always a rule').default("ask"),
    expire: z
      .strictObject({
        after_s: z.number().min(1).max(LONGEST_EXPIRY_S),
        effect: z.enum(["deny", "leave"], 'must be "deny" or "leave"; silence is never consent'),
      })
      .optional(),
    grants: z
      .strictObject({
        set_mode: z.boolean().optional(),
        add_rules: z.boolean().optional(),
        stored_rules: z.boolean().optional(),
      })
      .optional(),
  })
  .superRefine(({ rules }, context) => {
    const seen = new Set<string>();
    for (const [index, { id }] of rules.entries()) {
      if (seen.has(id)) context.addIssue({ code: "custom", path: ["rules", index, "id"], message: "is used twice" });
      seen.add(id);
    }
  });

const sessionPolicy = policy.refine(({ grants }) => grants?.stored_rules !== true, {
  message: "can only be granted by the tenant's policy",
  path: ["grants", "stored_rules"],
});

const question = z.strictObject({
  kind: z.enum(KINDS).optional(),
  tool_name: z.string().max(512).default(""),
  input: z.record(z.string(), z.unknown()).default({}),
  cwd: z.string().max(4_096).regex(/^\//, "must be an absolute path").default(DRY_RUN_FOLDER),
  mode: z.string().max(64).nullable().default(null),
  version: z.string().max(64).nullable().default(null),
  requires_person: z.boolean().optional(),
});
const policyCheck = z.strictObject({ question, session_id: clientId.optional() });
const policyQuery = z.strictObject({ tenant: z.string().min(1).max(63).optional() });

/** Zod writes `undefined` for absent fields' types; the document itself never carries one, since it came as JSON. */
const asPolicy = <T extends z.ZodType>(schema: T) => schema as unknown as z.ZodType<Policy>;

/** The document of a tenant. Errors name the rule by its index and the field (`rules.3.path.0`). @throws BrokerError bad_request */
export const parseTenantPolicy = (body: unknown): Policy => parseWith(asPolicy(policy), body);
/** The document of a session. @throws BrokerError bad_request */
export const parseSessionPolicy = (body: unknown): Policy => parseWith(asPolicy(sessionPolicy), body);
/** The query of GET and PUT /v1/policy, and of POST /v1/policy/check. @throws BrokerError bad_request */
export const parsePolicyQuery = (query: unknown) => parseWith(policyQuery, query);

/** The body of POST /v1/policy/check. An absent kind follows from the tool's name. @throws BrokerError bad_request */
export function parsePolicyCheck(body: unknown): { readonly question: PolicyQuestion; readonly session_id?: string } {
  const { question: asked, session_id } = parseWith(policyCheck, body);
  refuseDeepJson(asked.input, "question.input");
  const { kind, requires_person, ...rest } = asked;
  return {
    question: {
      ...rest,
      kind: kind ?? requestKind({ subtype: "can_use_tool", tool_name: rest.tool_name }),
      ...(requires_person !== undefined && { requires_person }),
    },
    ...(session_id !== undefined && { session_id }),
  };
}
