import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import { openTempStore, type TempStore } from "./temp-store.ts";

/** The store of the test that runs. */
export let store: TempStore;

/** Gives each test of a file a store of its own. */
export function useStore(before = beforeEach, after = afterEach): void {
  before(async () => {
    store = await openTempStore();
  });
  after(() => store.close());
}

/** The same for all tests of a file together. */
export function useOneStore(): void {
  useStore(beforeAll, afterAll);
}
