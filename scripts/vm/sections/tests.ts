import { startDocker } from "../docker.ts";
import { GUEST_TESTS, runTests } from "../engine-tests.ts";
import type { World } from "../sections.ts";

/** The project's own tests of the sandbox, on the guest's Docker. */
export async function checkTests(world: World): Promise<void> {
  await startDocker(world.guest);
  await runTests(world, GUEST_TESTS);
}
