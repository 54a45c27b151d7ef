import type { PipConfig } from "../packages/source.ts";

/** An agent's settings of pip: none, with the changes that a test wants. */
export const pipConfig = (changes: Partial<PipConfig> = {}): PipConfig => ({
  indexUrl: undefined,
  findLinks: undefined,
  caFile: undefined,
  hosts: [],
  proxyUrl: undefined,
  ...changes,
});
