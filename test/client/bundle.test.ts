import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "vite";
import { expect, test } from "vitest";

/** A page pays for every byte; docs/client.md says how many. */
const LIMIT_GZIP_BYTES = 10_000;

test("patchbay/client bundles for browsers: small, without dependencies, without eval", async () => {
  const input = fileURLToPath(new URL("../../src/client/index.ts", import.meta.url));
  const built = await build({
    configFile: false,
    logLevel: "error",
    build: {
      write: false,
      rolldownOptions: { input, preserveEntrySignatures: "strict", output: { format: "es", minify: true } },
    },
  });
  const outputs = (Array.isArray(built) ? built : [built]).flatMap((one) => ("output" in one ? one.output : []));
  const chunks = outputs.filter((output) => output.type === "chunk");
  expect(chunks).toHaveLength(1);
  const [chunk] = chunks;
  expect(chunk?.imports).toEqual([]);
  expect(
    Object.keys(chunk?.modules ?? {}).filter((path) => !/\/src\/(client|protocol)\/[a-z-]+\.ts$/.test(path)),
  ).toEqual([]);
  expect(chunk?.code).not.toMatch(/\beval\(|new Function|node:/);
  const bytes = gzipSync(chunk?.code ?? "").length;
  console.log(`patchbay/client: ${chunk?.code.length} bytes minified, ${bytes} gzipped`);
  expect(bytes).toBeLessThan(LIMIT_GZIP_BYTES);
});
