import { constants } from "node:sqlite";

/** What a statement may do besides calling functions, reading pragmas and making virtual tables. Everything that is not named is refused. */
const ALLOWED_ACTIONS: ReadonlySet<number> = new Set([
  constants.SQLITE_ALTER_TABLE,
  constants.SQLITE_ANALYZE,
  constants.SQLITE_CREATE_INDEX,
  constants.SQLITE_CREATE_TABLE,
  constants.SQLITE_CREATE_TEMP_INDEX,
  constants.SQLITE_CREATE_TEMP_TABLE,
  constants.SQLITE_CREATE_TEMP_TRIGGER,
  constants.SQLITE_CREATE_TEMP_VIEW,
  constants.SQLITE_CREATE_TRIGGER,
  constants.SQLITE_CREATE_VIEW,
  constants.SQLITE_DELETE,
  constants.SQLITE_DROP_INDEX,
  constants.SQLITE_DROP_TABLE,
  constants.SQLITE_DROP_TEMP_INDEX,
  constants.SQLITE_DROP_TEMP_TABLE,
  constants.SQLITE_DROP_TEMP_TRIGGER,
  constants.SQLITE_DROP_TEMP_VIEW,
  constants.SQLITE_DROP_TRIGGER,
  constants.SQLITE_DROP_VIEW,
  constants.SQLITE_DROP_VTABLE,
  constants.SQLITE_INSERT,
  constants.SQLITE_READ,
  constants.SQLITE_RECURSIVE,
  constants.SQLITE_REINDEX,
  constants.SQLITE_SELECT,
  constants.SQLITE_UPDATE,
]);

/** Pragmas about the schema: their argument is the name of a table or index. */
const SCHEMA_PRAGMAS = new Set([
  "foreign_key_check",
  "foreign_key_list",
  "index_info",
  "index_list",
  "index_xinfo",
  "integrity_check",
  "quick_check",
  "table_info",
  "table_list",
  "table_xinfo",
]);
/** Numbers in the file's head that are the user's own. */
const OWN_PRAGMAS = new Set(["application_id", "user_version"]);
/** Pragmas that may be read, not set. */
const READABLE_PRAGMAS = new Set([
  "collation_list",
  "compile_options",
  // Full text search asks for it by itself.
  "data_version",
  "encoding",
  "foreign_keys",
  "freelist_count",
  "function_list",
  "module_list",
  "page_count",
  "page_size",
  "pragma_list",
  "schema_version",
]);

/** load_extension runs a library; fts3_tokenizer takes the address of code. */
const REFUSED_FUNCTIONS = new Set(["fts3_tokenizer", "load_extension"]);
/** Full text search and boxes. The others of this build read the file's pages or are of no use here. */
const ALLOWED_MODULES = new Set(["fts5", "fts5vocab", "rtree", "rtree_i32"]);

const ACTION_WORDS: ReadonlyMap<number, string> = new Map([
  [constants.SQLITE_ATTACH, "ATTACH and VACUUM are"],
  [constants.SQLITE_DETACH, "DETACH is"],
  [constants.SQLITE_TRANSACTION, "BEGIN, COMMIT and ROLLBACK are"],
  [constants.SQLITE_SAVEPOINT, "SAVEPOINT, RELEASE and ROLLBACK TO are"],
]);

function isPragmaAllowed(name: string, value: string | null): boolean {
  if (SCHEMA_PRAGMAS.has(name) || OWN_PRAGMAS.has(name)) return true;
  return READABLE_PRAGMAS.has(name) && value === null;
}

/**
 * What SQLite's authorizer is told about one step of a statement: undefined to allow it, else why not, in words. SQLite asks for nested
 * statements too: views, triggers, and table-valued forms of pragmas.
 */
export function whyRefused(action: number, first: string | null, second: string | null): string | undefined {
  if (ALLOWED_ACTIONS.has(action)) return undefined;
  if (action === constants.SQLITE_FUNCTION) {
    return REFUSED_FUNCTIONS.has((second ?? "").toLowerCase()) ? `the function ${second} is not served` : undefined;
  }
  if (action === constants.SQLITE_PRAGMA) {
    return isPragmaAllowed((first ?? "").toLowerCase(), second) ? undefined : `PRAGMA ${first} is not served`;
  }
  if (action === constants.SQLITE_CREATE_VTABLE) {
    return ALLOWED_MODULES.has((second ?? "").toLowerCase()) ? undefined : `virtual tables of ${second} are not served`;
  }
  return `${ACTION_WORDS.get(action) ?? "this is"} not served`;
}
