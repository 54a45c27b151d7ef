import { wrongArguments } from "../command/arguments.ts";
import type { Checks } from "./checks.ts";
import type { Guest } from "./machine/guest.ts";
import { checkContainerdStore } from "./sections/containerd-store.ts";
import { checkDocker, checkForkedDocker } from "./sections/docker.ts";
import { checkGvisor } from "./sections/gvisor.ts";
import { checkPodman, checkRootlessPodman } from "./sections/podman.ts";
import { checkSystem } from "./sections/system.ts";
import { checkTests } from "./sections/tests.ts";
import { checkUnits } from "./sections/units.ts";

export type World = {
  readonly guest: Guest;
  readonly checks: Checks;
};

export type Section = {
  readonly name: string;
  readonly title: string;
  readonly run: (world: World) => Promise<void>;
};

const SECTIONS: readonly Section[] = [
  { name: "system", title: "system", run: checkSystem },
  { name: "docker", title: "Docker with overlay2", run: checkDocker },
  { name: "tests", title: "tests", run: checkTests },
  { name: "units", title: "systemd units", run: checkUnits },
  {
    name: "containerd",
    title: "Docker with the containerd image store",
    run: checkContainerdStore,
  },
  { name: "gvisor", title: "gVisor", run: checkGvisor },
  { name: "podman", title: "Podman as root", run: checkPodman },
  { name: "rootless", title: "rootless Podman", run: checkRootlessPodman },
  { name: "forked", title: "forked jobs, Docker", run: checkForkedDocker },
  {
    name: "forked-podman",
    title: "forked jobs, Podman as root",
    run: (world) => checkPodman(world, true),
  },
  {
    name: "forked-rootless",
    title: "forked jobs, rootless Podman",
    run: (world) => checkRootlessPodman(world, true),
  },
];

/** The sections of these names, all where there are none. Throws OperatorError on a name that is none's. */
export function chooseSections(names: readonly string[]): readonly Section[] {
  const known = SECTIONS.map(({ name }) => name);
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw wrongArguments(
      `there is no section ${unknown}, only ${known.join(", ")}`,
      "npm run test:vm",
    );
  }
  return SECTIONS.filter(({ name }) => names.length === 0 || names.includes(name));
}
