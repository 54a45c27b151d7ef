import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "../setup/engine/connect.ts";
import { readEngineStream } from "../setup/images/engine-stream.ts";
import { pingEngine } from "../setup/engine/ping-engine.ts";
import { mountsIn } from "./mounts-in.ts";

/** Podman's Docker-compatible service; its files lie in one folder. */
export type Podman = AsyncDisposable & {
  /** Such as unix:///…/podman.sock. */
  readonly host: string;
  /** Brings an image of another engine here, with its id, tags and labels. */
  readonly load: (fromHost: string, image: string) => Promise<void>;
};

/** A user of the test's own: made for it, and gone after it. */
const rootlessUser = "airlock-podman-test";

/** Podman asks for more processes than root may have without CAP_SYS_RESOURCE, as in some guests. */
const modestRunc = `#!/bin/sh
for arg; do
  [ -f "$arg/config.json" ] && sed -i 's/,{"type":"RLIMIT_NPROC"[^}]*}//' "$arg/config.json"
done
exec runc "$@"
`;

/** Starts a Podman as root, or as an ordinary user, and waits until it answers. */
export async function startPodman(as: "root" | "user"): Promise<Podman> {
  const dir = mkdtempSync("/var/tmp/airlock-podman-");
  const owner = as === "root" ? { uid: 0, gid: 0 } : makeUser(dir);
  const socket = `${dir}/podman.sock`;
  writeFileSync(`${dir}/runc`, modestRunc);
  chmodSync(`${dir}/runc`, 0o755);
  writeFileSync(`${dir}/containers.conf`, settings(as, dir));
  mkdirSync(`${dir}/home`);
  mkdirSync(`${dir}/runtime`, { mode: 0o700 });
  for (const path of [dir, `${dir}/home`, `${dir}/runtime`]) chownSync(path, owner.uid, owner.gid);

  const log = openSync(`${dir}/podman.log`, "w");
  const places = [
    "--root",
    `${dir}/storage`,
    "--runroot",
    `${dir}/run`,
    "--storage-driver=overlay",
  ];
  const service = spawn("podman", [...places, "system", "service", "-t", "0", `unix://${socket}`], {
    cwd: "/",
    ...owner,
    stdio: ["ignore", log, log],
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: `${dir}/home`,
      XDG_RUNTIME_DIR: `${dir}/runtime`,
      CONTAINERS_CONF: `${dir}/containers.conf`,
    },
  });
  closeSync(log);
  const host = `unix://${socket}`;

  async function end(): Promise<void> {
    if (isRunning(service)) {
      service.kill("SIGTERM");
      await once(service, "exit");
    }
    // What keeps a user's namespaces outlives the service.
    if (as === "user") await endAllOf(owner.uid);
    for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
    rmSync(dir, { recursive: true });
    if (as === "user") execFileSync("userdel", [rootlessUser]);
  }

  while ((await pingEngine(host)).state !== "answers") {
    if (!isRunning(service)) {
      const said = readFileSync(`${dir}/podman.log`, "utf8");
      await end();
      throw new Error(`podman did not start:\n${said}`);
    }
    await sleep(50);
  }
  return { host, load: loadInto(host), [Symbol.asyncDispose]: end };
}

/** The Podman that an ordinary user's own systemd runs, which gives it the controllers that hold limits. */
export function startSessionPodman(user: string): Podman {
  const runtime = `/run/user/${execFileSync("id", ["-u", user], { encoding: "utf8" }).trim()}`;
  const systemctl = (...args: string[]) =>
    execFileSync("runuser", ["-u", user, "--", "systemctl", "--user", ...args], {
      cwd: "/",
      env: {
        ...process.env,
        XDG_RUNTIME_DIR: runtime,
        DBUS_SESSION_BUS_ADDRESS: `unix:path=${runtime}/bus`,
      },
    });
  systemctl("start", "podman.socket");
  const host = `unix://${runtime}/podman/podman.sock`;
  return {
    host,
    load: loadInto(host),
    [Symbol.asyncDispose]: async () => void systemctl("stop", "podman.socket", "podman.service"),
  };
}

const loadInto =
  (host: string): Podman["load"] =>
  async (fromHost, image) => {
    const archive = await connect(fromHost).getImage(image).get();
    const progress = await connect(host).loadImage(archive);
    await readEngineStream(progress);
  };

function settings(as: "root" | "user", dir: string): string {
  return `[containers]
base_hosts_file = "none"
[engine]
runtime = "${as === "root" ? "modest-runc" : "runc"}"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
modest-runc = ["${dir}/runc"]
`;
}

/** Adds the user, and with it the ids that its containers map theirs to. */
function makeUser(dir: string): { uid: number; gid: number } {
  if (idOf("-u") === null) {
    execFileSync("useradd", ["--no-create-home", "--home-dir", `${dir}/home`, rootlessUser]);
  }
  return { uid: idOf("-u") ?? -1, gid: idOf("-g") ?? -1 };
}

function idOf(which: "-u" | "-g"): number | null {
  try {
    return Number(execFileSync("id", [which, rootlessUser], { stdio: "pipe" }).toString());
  } catch {
    return null;
  }
}

async function endAllOf(uid: number): Promise<void> {
  for (let own = processesOf(uid); own.length > 0; own = processesOf(uid)) {
    for (const pid of own) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It ended by itself.
      }
    }
    await sleep(20);
  }
}

/** The user's own processes; those of its containers have other ids, and end with their PID 1. */
function processesOf(uid: number): number[] {
  return readdirSync("/proc").flatMap((name) => {
    try {
      return /^\d+$/.test(name) && statSync(`/proc/${name}`).uid === uid ? Number(name) : [];
    } catch {
      return [];
    }
  });
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}
