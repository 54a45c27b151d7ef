import { spawnSync } from "node:child_process";
import type { StandIn } from "./stand-in.ts";

const PUBLIC_MIRROR = "http://deb.debian.org/debian/";
const ANSWER_TIMEOUT_MS = 10_000;

/** The Debian mirror that apt uses here, else the public one. */
export function debianMirror(): string {
  const filter = ["Identifier: Packages", "Origin: Debian", "Label: Debian"];
  const args = ["indextargets", "--format", "$(REPO_URI)", ...filter];
  const { stdout } = spawnSync("apt-get", args, { encoding: "utf8" });
  return stdout.split("\n")[0]?.trim() || PUBLIC_MIRROR;
}

/** The first of these releases that the mirror carries. */
export async function firstCarried(
  mirror: string,
  standIns: StandIn[],
): Promise<StandIn | undefined> {
  for (const standIn of standIns) {
    if (await carries(mirror, standIn.suite)) return standIn;
  }
  return undefined;
}

/**
 * Only a 404 means no: if fetch fails, debootstrap may still reach the mirror, for example through
 * a proxy.
 */
async function carries(mirror: string, suite: string): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const url = new URL(`dists/${suite}/Release`, mirror);
    return (await fetch(url, { method: "HEAD", signal })).status !== 404;
  } catch {
    return true;
  }
}
