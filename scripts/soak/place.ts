import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { readProcess } from "../setup/engine/processes.ts";
import { mountsIn } from "../testing/mounts-in.ts";
import { makePrivateDockerd } from "../testing/private-dockerd.ts";

const root = "/var/tmp";
const prefix = "airlock-soak-";

/** The folder of this process's soak: what is left in it tells a later one what to clear away. */
export function makePlace(): string {
  const path = join(root, `${prefix}${process.pid}`);
  mkdirSync(path);
  return path;
}

/** Ends and removes what soaks that were killed have left. */
export async function clearDeadPlaces(): Promise<void> {
  for (const name of readdirSync(root)) {
    if (!name.startsWith(prefix)) continue;
    if (readProcess(Number(name.slice(prefix.length)))) continue;
    await clearPlace(join(root, name));
  }
}

/** Ends every process that the place is named by, unmounts what is mounted in it, and removes it. */
export async function clearPlace(path: string): Promise<void> {
  for (const pid of programsOf(path)) process.kill(pid, "SIGKILL");
  const engine = join(path, "engine");
  if (existsSync(engine)) await makePrivateDockerd(engine)[Symbol.asyncDispose]();
  for (const mount of mountsIn(path)) execFileSync("umount", ["--lazy", mount]);
  rmSync(path, { recursive: true, force: true });
}

/** Live processes that name the place on their command line, but for its engine's. */
export function programsOf(path: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => {
      const args = pid > 0 && pid !== process.pid ? readProcess(pid)?.args.join(" ") : undefined;
      return args?.includes(`${path}/`) && !args.includes(`${path}/engine`);
    });
}
