import { match } from "node:assert/strict";
import { checkService } from "../check-service.ts";
import { startDocker } from "../docker.ts";
import { IMAGE_TESTS, runTests } from "../engine-tests.ts";
import type { World } from "../sections.ts";

/** Docker with images in containerd's store, as newer Dockers have it from the start. */
export async function checkContainerdStore(world: World): Promise<void> {
  const { guest, checks } = world;
  await startDocker(guest, { features: { "containerd-snapshotter": true } });
  await checks.check("Docker uses containerd's image store", async () => {
    const status = await guest.run("docker info --format '{{json .DriverStatus}}'");
    match(status, /io\.containerd\.snapshotter/);
  });
  await checkService(world, { unit: "airlock-containerd" });
  await runTests(world, IMAGE_TESTS);
}
