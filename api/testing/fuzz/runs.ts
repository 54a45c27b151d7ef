/** How many random requests each test sends: vitest.config.ts sets it for each tier. */
export const fuzzRuns = { numRuns: Number(process.env["FUZZ_RUNS"]) };
