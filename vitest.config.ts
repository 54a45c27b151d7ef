import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["{api,agent,shared,scripts,tests}/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    // What hangs is ended; what is right has its time on the slowest machine.
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
