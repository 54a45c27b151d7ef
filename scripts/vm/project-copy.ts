import type { Guest } from "./machine/guest.ts";
import { IN_GUEST } from "./machine/project-disk.ts";

/** Clones the project into a user's home, with the node_modules that are there. */
export async function copyProject(guest: Guest, user: string): Promise<void> {
  const folder = `/home/${user}/airlock`;
  await guest.run(`# clone the project for ${user}
[ ! -e ${folder} ] || exit 0
git clone --quiet ${IN_GUEST.project} ${folder}
mkdir ${folder}/node_modules
chown -R ${user}: ${folder}
mount --bind ${IN_GUEST.project}/node_modules ${folder}/node_modules
touch ${folder}/node_modules/.package-lock.json`);
}
