import { isLab } from "../../../shared/testing/tier.ts";

/** How many random requests each test sends. */
export const fuzzRuns = { numRuns: isLab ? 200 : 25 };
