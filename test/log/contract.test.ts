import { openFileEngine, openMemoryEngine } from "../kit/engines.ts";
import { logContract } from "./contract.ts";

logContract("SQLite in a file", openFileEngine);
logContract("in memory", openMemoryEngine);
