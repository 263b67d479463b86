import { createSealer } from "../../src/store/seal.ts";

/** A sealer with a key that everybody knows. */
export const TEST_SEALER = createSealer(["a key that is no secret, for tests only"]);
