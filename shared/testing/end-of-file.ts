import { afterAll } from "vitest";

const ends: (() => unknown)[] = [];

/**
 * Has the test file that runs end with this; what was given last ends first. A hook in a module of
 * helpers would not do: files of one process share the module, and only the first runs its hooks.
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
