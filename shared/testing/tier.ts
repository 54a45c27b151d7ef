/** The tier whose tests this process runs; vitest.config.ts sets it. */
export const tier = process.env["TEST_TIER"];

/** The lab repeats some files with another runtime or on another platform (scripts/test/tiers.ts). */
export const isLab = tier === "lab";
