import { equal, match } from "node:assert/strict";
import type { World } from "../sections.ts";

/** What the guest is, so that a run says what it was made on. */
export async function checkSystem({ guest, checks: { check, note } }: World): Promise<void> {
  const versions = await guest.run(`
uname -r
systemctl --version | head -n 1
dpkg-query -W -f '\${Package} \${Version}\\n' docker.io podman runc crun runsc 2>/dev/null || true`);
  note(versions.replaceAll("\n", ", "));

  await check("systemd runs, and every unit that it started", async () => {
    equal(await guest.run("systemctl --failed --plain --no-legend"), "");
  });
  await check("control groups are of version 2, with all controllers", async () => {
    equal(await guest.run("stat -f -c %T /sys/fs/cgroup"), "cgroup2fs");
    match(await guest.run("cat /sys/fs/cgroup/cgroup.controllers"), /cpu .*memory .*pids/);
  });
}
