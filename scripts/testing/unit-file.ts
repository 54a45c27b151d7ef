import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

/** A unit of packaging/systemd: its settings by name, each with all of its values. */
export type UnitFile = { readonly path: string; readonly values: (name: string) => string[] };

export function readUnit(name: string): UnitFile {
  const path = resolve("packaging/systemd", name);
  const settings = readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => /^[A-Z]\w*=/.test(line))
    .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const);
  return {
    path,
    values: (wanted) => settings.flatMap(([key, value]) => (key === wanted ? [value] : [])),
  };
}

export type UnitProcess = {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  /** Resolves once it has logged this. */
  readonly logged: (text: string) => Promise<void>;
};

/** An id that belongs to nobody, as DynamicUser gives one. */
const someUser = "61184";

/**
 * Starts a unit's command as it stands there, with its environment and that of `env` alone: as a user
 * of its own without a capability, this project at /opt/airlock, and no file system to write to but
 * /tmp and the unit's state.
 */
export function startUnit(unit: UnitFile, env: Record<string, string>): UnitProcess {
  const [command = ""] = unit.values("ExecStart");
  const [folder = ""] = unit.values("WorkingDirectory");
  const [state = ""] = unit.values("StateDirectory");
  const groups = unit.values("SupplementaryGroups").map(groupId);
  const own = unit.values("Environment").map((pair) => pair.split("=", 2) as [string, string]);
  const script = `
    mount --bind "$0" /mnt
    mount -t tmpfs none /opt && mkdir ${folder} && mount --bind /mnt ${folder}
    mount -t tmpfs none /tmp && chmod 1777 /tmp
    mount -t tmpfs none /var/lib && mkdir -m 700 /var/lib/${state} && chown ${someUser} /var/lib/${state}
    mount -o remount,bind,ro ${folder} && mount -o remount,bind,ro /
    cd ${folder}
    exec setpriv --reuid ${someUser} --regid ${someUser} --groups ${[someUser, ...groups].join(",")} \\
      --no-new-privs --bounding-set=-all --inh-caps=-all ${command}`;
  const child = spawn("unshare", ["--mount", "sh", "-ec", script, resolve(".")], {
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
      ...Object.fromEntries(own),
      ...env,
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const exited = once(child, "close").then(([code]) => code as number | null);
  return {
    child,
    exited,
    logged: async (text) => {
      while (!log.includes(text)) {
        if (child.exitCode !== null) throw new Error(`ended without "${text}":\n${log}`);
        await Promise.race([once(child.stderr, "data"), exited]);
      }
    },
  };
}

function groupId(name: string): string {
  return execFileSync("getent", ["group", name]).toString().split(":")[2] ?? "";
}
