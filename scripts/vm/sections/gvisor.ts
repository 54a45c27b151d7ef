import { match } from "node:assert/strict";
import { checkService } from "../check-service.ts";
import { startDocker } from "../docker.ts";
import type { World } from "../sections.ts";

/** Jobs under gVisor, where Debian has it. */
export async function checkGvisor(world: World): Promise<void> {
  const { guest, checks } = world;
  if ((await guest.run("command -v runsc || true")) === "") {
    checks.note("Debian has no runsc for this release: not checked");
    return;
  }
  await startDocker(guest);
  await checks.check("Docker knows the runtime runsc", async () => {
    match(await guest.run("docker info --format '{{json .Runtimes}}'"), /runsc/);
  });
  const env = { AIRLOCK_CONTAINER_RUNTIME: "runsc" };
  // gVisor shows the job control groups of its own.
  await checkService(world, { unit: "airlock-gvisor", env }, { how: "with runsc", limits: false });
}
