import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take longest: begun first, they do not run on alone at the end. */
const LONGEST = ["api/tests/node.service.test.ts", "api/tests/worker.service.test.ts"];

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

function isLong({ moduleId }: TestSpecification): boolean {
  return LONGEST.some((name) => moduleId.endsWith(name));
}
