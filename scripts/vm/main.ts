import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { getPriority, setPriority } from "node:os";
import { join } from "node:path";
import { readArguments } from "../command/arguments.ts";
import { readConfig } from "../command/config.ts";
import { runMain } from "../command/operator-error.ts";
import { say } from "../command/say.ts";
import { connect } from "../setup/engine/connect.ts";
import { setUp } from "../setup/set-up.ts";
import { CACHE, ensureGuestImage } from "./machine/build-image.ts";
import { makeChecks } from "./checks.ts";
import { ensureQemu } from "./machine/ensure-qemu.ts";
import { connectGuest } from "./machine/guest.ts";
import { makeProjectDisk } from "./machine/project-disk.ts";
import { startMachine } from "./machine/qemu.ts";
import { chooseSections } from "./sections.ts";
import { ensureVmTools } from "./machine/tools.ts";

const command = "npm run test:vm";
const help = `Usage: ${command} -- [section …]

Builds a Debian 13 machine, boots it in qemu, puts the committed HEAD of this checkout into it, and checks there what
depends on the host: cgroup v2, systemd, Docker 26 with both image stores, Podman 5 as root and rootless, gVisor.
Needs root. docs/testing-vm.md lists the sections and says what a run takes.
`;

await runMain(async () => {
  const names = readArguments(command, help);
  if (!names) return;
  const sections = chooseSections(names);
  // An emulated machine keeps its processors busy: qemu and the rest of this run leave other work its share.
  setPriority(Math.max(getPriority(), 10));
  await ensureVmTools();
  const { dockerHost, image: baseImage } = await setUp(readConfig(process.env));
  const qemu = await ensureQemu();
  const image = await ensureGuestImage();
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, "run-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  // qemu and ssh are told by the kernel when this process ends; the folder is not.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.once(signal, () => {
      remove();
      process.exit(1);
    });
  }
  try {
    const disk = await makeProjectDisk(folder, connect(dockerHost), baseImage);
    await using machine = await startMachine(qemu, image, disk, folder);
    say("the guest boots (20 s with KVM, a minute or more under emulation)");
    await using guest = await connectGuest(machine, image, folder);
    const checks = makeChecks((line) => process.stdout.write(`${line}\n`));
    for (const { title, run } of sections) {
      await checks.section(title, () => run({ guest, checks }));
    }
    const { passed, failed } = checks.summary();
    process.stdout.write(`${passed} passed, ${failed} failed\n`);
    process.exitCode = failed === 0 ? 0 : 1;
  } finally {
    remove();
  }
});
