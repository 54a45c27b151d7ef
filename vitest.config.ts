import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["{api,agent,shared,scripts,tests}/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 90_000,
    hookTimeout: 120_000,
  },
});
