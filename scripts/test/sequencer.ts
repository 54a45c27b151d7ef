import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take longest, longest first: begun first, they do not run on alone at the end. */
const LONGEST = [
  "api/tests/worker.service.test.ts",
  "clients/console/tests/views.service.test.ts",
  "api/tests/node.service.test.ts",
  "agent/backends/forks.engine.test.ts",
  "clients/console/tests/mishaps.service.test.ts",
  "scripts/lab/sessions.engine.test.ts",
  "scripts/lab/job-types.engine.test.ts",
  "agent/packages/cache.engine.test.ts",
  "scripts/lab/soak/tenants.engine.test.ts",
  "agent/sandbox/python.engine.test.ts",
];

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((one, other) => rank(one) - rank(other));
  }
}

function rank({ moduleId }: TestSpecification): number {
  const place = LONGEST.findIndex((name) => moduleId.endsWith(name));
  return place === -1 ? LONGEST.length : place;
}
