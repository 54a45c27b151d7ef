import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { getPriority, setPriority } from "node:os";
import { join } from "node:path";
import { readArguments, readConfig, runMain, say, wrongArguments } from "../../operate/command.ts";
import { connect } from "../../setup/engine.ts";
import { setUp } from "../../setup/set-up.ts";
import { requireTools } from "../../setup/tools.ts";
import {
  CACHE,
  connectGuest,
  ensureGuestImage,
  ensureQemu,
  ensureVmTools,
  makeProjectDisk,
  startMachine,
} from "./machine.ts";
import { describeGuest, type Run, runInGuest, runs } from "./machine.ts";

const command = "npm run test:vm";
const help = `Usage: ${command} -- [run …]

Builds a Debian 13 machine, boots it in qemu, puts the committed HEAD of this checkout into it, and runs those of its tests
there that depend on the host: cgroup v2, systemd, Docker 26 with both image stores, Podman 5 as root and rootless, gVisor.
The runs are ${runs.map(({ name }) => name).join(", ")}. Needs root. docs/testing-vm.md says what the runs test, and what they need.
`;

await runMain(async () => {
  const names = readArguments(command, help);
  if (!names) return;
  const chosen = chooseRuns(names);
  // An emulated machine keeps its processors busy: qemu and the rest of this run leave other work its share.
  setPriority(Math.max(getPriority(), 10));
  await ensureVmTools();
  await requireTools(["go", "helm"], command);
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
    process.stdout.write(`${await describeGuest(guest)}\n`);
    let failed = 0;
    for (const run of chosen) {
      const said = await runInGuest(guest, run).then(
        (end) => `passed  ${run.name}\n${end}`,
        (error: unknown) => {
          failed += 1;
          return `failed  ${run.name}\n${error instanceof Error ? error.message : String(error)}`;
        },
      );
      process.stdout.write(`${said}\n`);
    }
    process.stdout.write(`${chosen.length - failed} passed, ${failed} failed\n`);
    process.exitCode = failed === 0 ? 0 : 1;
  } finally {
    remove();
  }
});

/** The runs with these names, or all runs if there are no names. Throws OperatorError on an unknown name. */
function chooseRuns(names: readonly string[]): readonly Run[] {
  const known = runs.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw wrongArguments(`there is no run ${unknown}, only ${known.join(", ")}`, command);
  }
  return runs.filter(({ name }) => names.length === 0 || names.includes(name));
}
