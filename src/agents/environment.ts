import { BrokerError } from "../protocol/problems.ts";
import type { AgentOptions } from "../protocol/sessions.schema.ts";
import { optionEnvironment } from "./options.ts";

export interface EnvironmentSources {
  /** The session's own HOME. */
  readonly home: string;
  /** The session's own CLAUDE_CONFIG_DIR. */
  readonly configDir: string;
  /** What the operator hands to every agent: PATCHBAY_AGENT_ENV_<NAME>, without the prefix. */
  readonly shared: Readonly<Record<string, string>>;
  /** The session's own: `env`, and what its other options put into the environment. */
  readonly options: AgentOptions;
}

/** Linux takes 128 KiB in one variable, with its name and closing NUL. */
const VARIABLE_LIMIT_BYTES = 128 * 1024 - 1;
/** All variables of a session together; a Linux process has about 2 MiB for arguments and environment. */
const SESSION_LIMIT_BYTES = 512 * 1024;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** What every agent has. The operator may replace any of it. */
const BASE = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  LANG: "C.UTF-8",
  TERM: "dumb",
  SHELL: "/bin/bash",
  USER: "agent",
  LOGNAME: "agent",
  // The frames that say whether the CLI runs, waits for somebody, or is idle (spec/claude-protocol 1.3).
  CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS: "1",
  // The version is the operator's choice, and the program may lie in a read-only place.
  DISABLE_AUTOUPDATER: "1",
};

/** Each session's own, so not even the operator sets them for all. */
const OWN = new Set(["HOME", "CLAUDE_CONFIG_DIR", "CLAUDECODE"]);

/**
 * Variables that choose programs to run, libraries to load, files to read first, or where traffic and credentials go. They would
 * widen what an agent does without anybody being asked. Compared in upper case: some are read in either.
 */
const REFUSED = new Set(
  `PATH HOME SHELL USER LOGNAME PWD OLDPWD TMPDIR TMP TEMP IFS CDPATH ENV BASH_ENV BASHOPTS SHELLOPTS PROMPT_COMMAND PS0 PS1 PS2 PS4
   ZDOTDIR FPATH EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE LESSKEY MORE LESS TAR_OPTIONS MAKEFLAGS MFLAGS GNUMAKEFLAGS GOFLAGS GOENV
   NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_REPL_EXTERNAL_MODULE NODE_V8_COVERAGE
   PYTHONSTARTUP PYTHONPATH PYTHONHOME PYTHONINSPECT PYTHONUSERBASE PYTHONBREAKPOINT PYTHONWARNINGS
   PERL5OPT PERL5LIB PERL5DB PERLLIB RUBYOPT RUBYLIB CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
   GCONV_PATH LOCPATH NLSPATH HOSTALIASES RESOLV_HOST_CONF GLIBC_TUNABLES OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES
   SSH_ASKPASS SUDO_ASKPASS SSH_AUTH_SOCK TERMINFO TERMINFO_DIRS TERMCAP
   HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE AWS_CA_BUNDLE
   CLAUDECODE IS_SANDBOX DISABLE_AUTOUPDATER`
    .split(/\s+/)
    .filter((name) => name !== ""),
);
const REFUSED_FAMILIES = /^(LD|DYLD|BUN|DENO|XDG|PATCHBAY|NPM_CONFIG|YARN|PIP|CARGO|RUSTC|BASH_FUNC|MALLOC|OTEL)_/;

/** Of families that are refused otherwise: these names choose no program and no place. */
const ALLOWED_OF_FAMILY: readonly (readonly [family: RegExp, allowed: RegExp])[] = [
  [/^GIT_/, /^GIT_((AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|TERMINAL_PROMPT)$/],
  [/^CLAUDE_/, /^CLAUDE_CODE_(OAUTH_TOKEN|MAX_RETRIES|MAX_OUTPUT_TOKENS|SUBAGENT_MODEL|DISABLE_NONESSENTIAL_TRAFFIC)$/],
  [/^ANTHROPIC_/, /^ANTHROPIC_(API_KEY|AUTH_TOKEN|MODEL|SMALL_FAST_MODEL|DEFAULT_[A-Z]+_MODEL)$/],
];

/**
 * An agent's whole environment, made from nothing: the server's own never reaches it.
 * @throws BrokerError agent_arg_refused with `details.field` = `agent.env.NAME`; config_invalid for a wrong shared name
 */
export function agentEnvironment({ home, configDir, shared, options }: EnvironmentSources): Record<string, string> {
  for (const [name, value] of Object.entries(shared)) {
    if (!NAME.test(name) || value.includes("\0") || OWN.has(name)) {
      throw new BrokerError("config_invalid", `PATCHBAY_AGENT_ENV_${name} cannot be handed to agents. Remove it.`);
    }
  }
  const { env = {} } = options;
  checkSession(env);
  return { ...BASE, ...shared, ...optionEnvironment(options), ...env, HOME: home, CLAUDE_CONFIG_DIR: configDir };
}

function checkSession(session: Readonly<Record<string, string>>): void {
  let totalBytes = 0;
  for (const [name, value] of Object.entries(session)) {
    const bytes = Buffer.byteLength(`${name}=${value}`);
    totalBytes += bytes;
    if (!NAME.test(name)) throw refused(name, "is not a variable name");
    if (!mayBeSet(name.toUpperCase())) throw refused(name, "is not a variable that a session may set in this version");
    if (value.includes("\0")) throw refused(name, "holds a NUL character");
    if (bytes > VARIABLE_LIMIT_BYTES) throw refused(name, `is over ${VARIABLE_LIMIT_BYTES} bytes`);
    if (totalBytes > SESSION_LIMIT_BYTES) throw refused(name, "makes the environment too large");
  }
}

function mayBeSet(name: string): boolean {
  if (REFUSED.has(name) || REFUSED_FAMILIES.test(name)) return false;
  return ALLOWED_OF_FAMILY.every(([family, allowed]) => !family.test(name) || allowed.test(name));
}

function refused(name: string, why: string): BrokerError {
  const field = `agent.env.${name.slice(0, 80)}`;
  return new BrokerError("agent_arg_refused", `${field}: ${why}. Remove or correct it.`, { details: { field } });
}
