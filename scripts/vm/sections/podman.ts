import { equal, match } from "node:assert/strict";
import { stopDocker } from "../docker.ts";
import { quote } from "../guest.ts";
import { checkOutcomes } from "../outcomes.ts";
import { copyProject } from "../project-copy.ts";
import { IN_GUEST } from "../project-disk.ts";
import type { World } from "../sections.ts";
import { type ServiceOptions, startService } from "../service.ts";

const USER = "ada";

/** `npm start` on root's Podman, which it finds by itself where no Docker runs. */
export async function checkPodman(world: World): Promise<void> {
  await stopDocker(world.guest);
  await check(world, (command) => command, { unit: "airlock-podman" });
}

/** The same as an ordinary user, on that user's own Podman. */
export async function checkRootlessPodman(world: World): Promise<void> {
  const { guest } = world;
  await stopDocker(guest);
  const runtimeDir = `/run/user/${await guest.run(`id -u ${USER}`)}`;
  await copyProject(guest, USER);
  // Without the address of the user's bus, Podman makes control groups outside of the user's systemd.
  const session = `XDG_RUNTIME_DIR=${runtimeDir} DBUS_SESSION_BUS_ADDRESS=unix:path=${runtimeDir}/bus`;
  // Each command as the user whose systemd holds the socket.
  const asUser = (command: string): string =>
    `cd / && runuser -u ${USER} -- env ${session} bash -c ${quote(command)}`;
  await check(world, asUser, {
    unit: "airlock-rootless",
    user: USER,
    folder: `/home/${USER}/airlock`,
    env: { XDG_RUNTIME_DIR: runtimeDir },
  });
}

async function check(
  { guest, checks }: World,
  as: (command: string) => string,
  options: ServiceOptions,
): Promise<void> {
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
  let service: Awaited<ReturnType<typeof startService>> | undefined;
  await checks.check("npm start gets ready", async () => {
    service = await startService(guest, options);
  });
  if (!service) {
    await guest.run(`systemctl stop ${options.unit} || true`);
    return;
  }
  const { stop } = service;
  await checkOutcomes(checks, service);
  await checks.check("npm start ends well and leaves no container", async () => {
    await stop();
    equal(await guest.run(as("podman ps --all --quiet")), "");
  });
}
