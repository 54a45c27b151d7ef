import { expect, test } from "vitest";
import { newExecution, openTempStore } from "../../testing/temp-store.ts";
import { jobTypesUsedSince } from "./recent-job-types.ts";
import { submitExecution } from "./submit.ts";

test("returns the requested job types whose latest execution is recent", async () => {
  const store = await openTempStore();
  try {
    const used: [string, number][] = [
      ["old", 10],
      ["new", 10],
      ["new", 20],
      ["unasked", 30],
    ];
    for (const [jobType, createdAt] of used) {
      await submitExecution(store.db, newExecution({ jobType, createdAt }), 1000);
    }
    const since = (time: number) => jobTypesUsedSince(store.db, ["old", "new", "never"], time);
    expect(await since(20)).toEqual(["new"]);
    expect(await since(21)).toEqual([]);
    expect(await since(10)).toEqual(["old", "new"]);
  } finally {
    store.close();
  }
});
