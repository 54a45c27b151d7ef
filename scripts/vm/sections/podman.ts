import { match } from "node:assert/strict";
import { checkService } from "../check-service.ts";
import { stopDocker } from "../docker.ts";
import { quote } from "../machine/guest.ts";
import { copyProject } from "../project-copy.ts";
import { IN_GUEST } from "../machine/project-disk.ts";
import type { World } from "../sections.ts";
import type { ServiceOptions } from "../service.ts";

const USER = "ada";

/** `npm start` on root's Podman, which it finds by itself where no Docker runs. */
export async function checkPodman(world: World, forked = false): Promise<void> {
  await stopDocker(world.guest);
  await checkOn(world, (command) => command, { unit: "airlock-podman" }, forked);
}

/** The same as an ordinary user, on that user's own Podman. */
export async function checkRootlessPodman(world: World, forked = false): Promise<void> {
  const { guest } = world;
  await stopDocker(guest);
  const runtimeDir = `/run/user/${await guest.run(`id -u ${USER}`)}`;
  await copyProject(guest, USER);
  // Without the address of the user's bus, Podman makes control groups outside of the user's systemd.
  const session = `XDG_RUNTIME_DIR=${runtimeDir} DBUS_SESSION_BUS_ADDRESS=unix:path=${runtimeDir}/bus`;
  // Each command as the user whose systemd holds the socket.
  const asUser = (command: string): string =>
    `cd / && runuser -u ${USER} -- env ${session} bash -c ${quote(command)}`;
  const options = {
    unit: "airlock-rootless",
    user: USER,
    folder: `/home/${USER}/airlock`,
    env: { XDG_RUNTIME_DIR: runtimeDir },
  };
  await checkOn(world, asUser, options, forked);
}

/** @param as Makes a command one of the user who has the Podman. */
async function checkOn(
  world: World,
  as: (command: string) => string,
  options: ServiceOptions,
  forked: boolean,
): Promise<void> {
  const { guest, checks } = world;
  const scope = options.user ? "--user " : "";
  await guest.run(as(`systemctl ${scope}start podman.socket`));
  await guest.run(
    as(`podman images --quiet | grep -q . || podman load --quiet --input ${IN_GUEST.baseImage}`),
  );
  await checks.check("Podman has the controllers that hold limits", async () => {
    const format = "{{.Host.CgroupsVersion}} {{.Host.CgroupControllers}}";
    // The service's controllers, not those of this command.
    const info = await guest.run(as(`podman --remote info --format '${format}'`));
    match(info, /^v2 .*cpu.*memory.*pids/);
  });
  await checkService(world, options, {
    how: `as ${options.user ? "an ordinary user" : "root"}`,
    engine: (args) => guest.run(as(`podman ${args}`)),
    forked,
  });
}
