import { equal } from "node:assert/strict";
import { containersLeft, startDocker } from "../docker.ts";
import { checkOutcomes } from "../outcomes.ts";
import type { World } from "../sections.ts";
import { copyProject } from "../project-copy.ts";
import { type ServiceOptions, startService } from "../service.ts";

/** `npm start` on the guest's Docker, as root and as a user of the group docker. */
export async function checkDocker(world: World): Promise<void> {
  const { guest, checks } = world;
  await startDocker(guest);
  await checks.check("Docker uses overlay2 and the systemd cgroup driver", async () => {
    const format = "{{.Driver}} {{.CgroupDriver}} {{.CgroupVersion}}";
    equal(await guest.run(`docker info --format '${format}'`), "overlay2 systemd 2");
  });
  await checkService(world, { unit: "airlock-docker", npm: true });
  await copyProject(guest, "ada");
  const user = { user: "ada", groups: ["docker"], folder: "/home/ada/airlock" };
  await checkService(world, { unit: "airlock-docker-group", ...user }, "as a user of its group");
}

/** Starts the service, runs jobs of every outcome, and stops it with nothing left behind. */
export async function checkService(
  { guest, checks }: World,
  options: ServiceOptions,
  how = "as root",
  limits = true,
): Promise<void> {
  let service: Awaited<ReturnType<typeof startService>> | undefined;
  const started = await checks.check(`npm start gets ready ${how}`, async () => {
    service = await startService(guest, options);
  });
  if (!started || !service) {
    await guest.run(`systemctl stop ${options.unit} || true`);
    return;
  }
  const { stop } = service;
  await checkOutcomes(checks, service, { limits });
  await checks.check("npm start ends well and leaves no container", async () => {
    await stop();
    equal(await containersLeft(guest), "");
  });
}
