import { tiersOf } from "../../test/tiers.ts";
import { type Guest, IN_GUEST, quote } from "./machine.ts";

/** Files of one tier's tests, which the guest runs on a Docker of this configuration. */
export type Run = {
  readonly name: string;
  readonly files: readonly string[];
  /** The titles of the tests that run; without it, all tests run. */
  readonly rows?: RegExp;
  /** More of Docker's daemon.json. */
  readonly docker?: object;
};

/**
 * Tests whose result cgroup v2, systemd, another engine or a current kernel could change. They are few, because
 * emulation is 5 to 20 times slower, and none has a bound on CPU times or durations.
 */
export const runs: readonly Run[] = [
  {
    name: "docker",
    files: [
      "scripts/lab/start.engine.test.ts",
      "scripts/lab/forked.engine.test.ts",
      "agent/sandbox/kernel.engine.test.ts",
      "agent/sandbox/hostile/privileges.engine.test.ts",
    ],
  },
  {
    name: "processes",
    files: ["agent/sandbox/hostile/limits.engine.test.ts"],
    rows: /allocates past the limit|a child runs out of memory|memory that outlives the code|full folders|ignores SIGTERM|fork bomb|thread bomb|does not reach the supervisor|a daemon/,
  },
  { name: "gvisor", files: ["agent/host/policy.engine.test.ts"], rows: /on gVisor/ },
  { name: "systemd", files: ["scripts/lab/systemd.lab.test.ts"] },
  { name: "podman", files: ["scripts/lab/podman.lab.test.ts"] },
  {
    // As newer Dockers have it from the start. Images that go from engine to engine are left out: without a registry
    // that does not work with containerd's store (docs/guides/packages.md).
    name: "containerd",
    docker: { features: { "containerd-snapshotter": true } },
    files: ["agent/builds/build.engine.test.ts", "scripts/lab/start.engine.test.ts"],
    rows: /makes an image|leaves only the package|serves jobs/,
  },
];

/**
 * gVisor as `npm run setup` registers it: Debian's runsc cannot build its network on recent kernels. A guest without runsc
 * has the entry too; only a container that asks for it fails.
 */
const runtimes = { runsc: { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] } };

const timeoutMs = 4 * 3_600_000;

/** Describes the guest. Throws GuestError if it is not the machine that the tests need. */
export async function describeGuest(guest: Guest): Promise<string> {
  return guest.run(`# the guest's systemd and control groups
uname -r
systemctl --version | head -n 1
dpkg-query -W -f '\${Package} \${Version}\\n' docker.io podman runc crun runsc 2>/dev/null || true
systemctl --failed --plain --no-legend | tee /dev/stderr | { ! grep -q .; }
grep -q 'cpu .*memory .*pids' /sys/fs/cgroup/cgroup.controllers`);
}

/** Runs the files and returns the end of what vitest printed. Throws GuestError with all of it if a test fails. */
export async function runInGuest(
  guest: Guest,
  { name, files, rows, docker }: Run,
): Promise<string> {
  const daemon = JSON.stringify({ runtimes, ...docker });
  await guest.run(`# start docker
mkdir -p /etc/docker
echo ${quote(daemon)} >/etc/docker/daemon.json
systemctl reset-failed docker 2>/dev/null || true
systemctl restart docker
docker images --quiet | grep -q . || docker load --quiet --input ${IN_GUEST.baseImage}`);
  const only = rows ? `--testNamePattern=${quote(rows.source)}` : "";
  const tier = tiersOf(files[0]!)[0];
  const printed = await guest.run(
    `# ${name}: ${files.join(" ")}
cd ${IN_GUEST.project}
export PATH=$PWD/node_modules/.bin:$PATH NO_COLOR=1 TEST_PATIENCE=12 TEST_VM_USER=ada
export AIRLOCK_DOCKER_HOST=unix:///var/run/docker.sock
vitest run --project ${tier} --retry 0 ${only} ${files.join(" ")} 2>&1`,
    timeoutMs,
  );
  return printed.slice(printed.lastIndexOf(" Test Files"));
}
