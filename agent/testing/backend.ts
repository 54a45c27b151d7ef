import { randomUUID } from "node:crypto";
import { getLogger } from "@logtape/logtape";
import { isLab, tier } from "../../shared/testing/test-file.ts";
import { openSandbox, type StartSandbox } from "../backends/containers.ts";
import { createForks, type Forks, type ForksDeps, whyNotForked } from "../backends/forks.ts";
import { NotForkable } from "../backends/mother.ts";
import type { MotherSpec } from "../backends/profiles.ts";
import type { Engine } from "../engine/engine.ts";
import { createFurnishedImages } from "../images/furnish.ts";
import type { InputFile, PackageRequest, SandboxJob } from "../sandbox/job.ts";
import type { Sandbox, SandboxSpec } from "../sandbox/sandbox.ts";

/** The backend that sandbox tests run against. */
export const backend = tier === "zygote" ? "zygote" : "engine";

/** The runtime that sandbox tests choose for their containers. */
export const sandboxRuntime = isLab ? "runsc" : "runc";

let forks: Forks | undefined;

/** The variable with the agent id that all mothers of one test run have. */
export const MOTHERS = "TEST_MOTHERS";

type Place = { engine: Engine; image: string };

const furnished = new WeakMap<Engine, StartSandbox>();

/** Opens containers as an agent does. */
function openContainer({ engine }: Place): StartSandbox {
  const open: StartSandbox = (spec, signal) => openSandbox(engine, spec, signal);
  const known =
    furnished.get(engine) ?? createFurnishedImages(engine, getLogger("test")).startOn(open);
  furnished.set(engine, known);
  return known;
}

/** Opens a sandbox with the backend of this run. */
export function openOn(
  place: Place,
  spec: SandboxSpec,
  signal: AbortSignal,
  chosen = backend,
  ahead?: SandboxJob,
): Promise<Sandbox> {
  if (chosen === "engine" || whyNotForked(spec) !== null) return openContainer(place)(spec, signal);
  return forksOfProcess(place)
    .open(spec, signal, undefined, ahead)
    .catch((error: unknown) => {
      if (error instanceof NotForkable) return openContainer(place)(spec, signal);
      throw error;
    });
}

/**
 * Opens a sandbox in which packages are installed. A fork finds them there; a container has them
 * installed in it, also where they come from an earlier installation.
 */
export async function openWithPackages(
  place: Place,
  spec: SandboxSpec,
  { requirements, from }: PackageRequest,
  signal: AbortSignal,
  installSignal: AbortSignal,
): Promise<Sandbox> {
  if (backend === "engine" || !("pipEnv" in from)) {
    const sandbox = await openContainer(place)(spec, signal);
    try {
      await sandbox.install({ requirements, from }, installSignal);
      return sandbox;
    } catch (error) {
      await sandbox.close();
      throw error;
    }
  }
  const own = { ...spec, packages: "none" } as const;
  const forks = forksOfProcess(place);
  const wanted = { requirements, tenant: "default", key: randomUUID(), from, took: () => {} };
  const bundle = await forks.borrow(
    own,
    { ...wanted, wait: (install) => install(installSignal) },
    installSignal,
  );
  const sandbox = await forks.open(own, signal, {
    packages: { bundle: bundle.name, requirements },
    files: [],
  });
  return { ...sandbox, close: () => sandbox.close().finally(bundle.giveBack) };
}

/** Opens a sandbox whose files are in it: a fork mounts those of more than a few bytes. */
export async function openWithFiles(
  place: Place,
  spec: SandboxSpec,
  files: readonly InputFile[],
  signal: AbortSignal,
): Promise<Sandbox> {
  const mounted = backend === "zygote" ? files.filter(({ sizeBytes }) => sizeBytes > 8) : [];
  const sent = files.filter((file) => !mounted.includes(file));
  const fork = async (): Promise<Sandbox> => {
    const forks = forksOfProcess(place);
    const loans = await Promise.all(
      mounted.map((file) => forks.borrowFile("default", file, signal)),
    );
    const provided = mounted.map(({ name }, n) => ({ name, bundle: loans[n]!.name }));
    const sandbox = await forks.open(spec, signal, { packages: null, files: provided });
    const giveBack = (): void => loans.forEach((loan) => loan.giveBack());
    return { ...sandbox, close: () => sandbox.close().finally(giveBack) };
  };
  const sandbox = await (mounted.length > 0 ? fork() : openOn(place, spec, signal));
  await sandbox.giveFiles(sent, signal);
  return sandbox;
}

/** What forks the jobs of all test files of this process; scripts/test/global-set-up.ts removes it. */
function forksOfProcess(place: Place): Forks {
  const agentId = process.env[MOTHERS];
  if (agentId === undefined) throw new Error(`${MOTHERS} must name what the run's end removes`);
  return (forks ??= startForks(place, { mother: { agentId } }));
}

/** What forks the jobs of a test. The caller closes it. */
export function startForks(
  { engine, image }: Place,
  { mother, ...more }: Partial<Omit<ForksDeps, "mother">> & { mother?: Partial<MotherSpec> } = {},
): Forks {
  return createForks({
    engine,
    mother: {
      rootfs: "airlock-rootfs-tests",
      bundles: "airlock-bundles-tests",
      agentId: randomUUID(),
      agentName: "sandbox-tests-mother",
      slots: 4,
      memoryBytes: null,
      pids: 4096,
      ...mother,
    },
    motherImage: () => Promise.resolve(image),
    ids: [0x7000_0000, 65_536],
    // Kept: another process of the tests may be about to use a bundle that nobody uses.
    packages: { maxBytes: 256 * 1024 ** 2, keepsUnused: true, memoryBytes: 1024 ** 3 },
    log: getLogger("test"),
    ...more,
  });
}
