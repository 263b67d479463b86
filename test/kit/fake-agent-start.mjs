// Plain JavaScript, and the cache switched on before the first TypeScript file: this halves the fake agent's start.
import { enableCompileCache } from "node:module";

enableCompileCache();
await import("./fake-agent.ts");
