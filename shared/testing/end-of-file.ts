import { afterAll } from "vitest";

const ends: (() => unknown)[] = [];

/**
 * Calls a function at the end of the test file that runs, the last one given first. `afterAll` in a module
 * of helpers would not do: files of one process share the module, and only the first runs its hooks.
 */
export function atEndOfFile(end: () => unknown): void {
  ends.push(end);
}

/** Set-up of each test file calls it. */
export function endWithFile(): void {
  afterAll(async () => {
    for (let end = ends.pop(); end !== undefined; end = ends.pop()) await end();
  });
}
