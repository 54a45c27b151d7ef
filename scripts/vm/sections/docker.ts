import { equal } from "node:assert/strict";
import { checkService } from "../check-service.ts";
import { startDocker } from "../docker.ts";
import { copyProject } from "../project-copy.ts";
import type { World } from "../sections.ts";

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
  await checkService(
    world,
    { unit: "airlock-docker-group", ...user },
    { how: "as a user of its group" },
  );
}

/** Jobs that are forked inside one container of Docker. */
export async function checkForkedDocker(world: World): Promise<void> {
  await startDocker(world.guest);
  await checkService(world, { unit: "airlock-forked" }, { forked: true });
}
