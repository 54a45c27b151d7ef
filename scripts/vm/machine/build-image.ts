import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { say } from "../../command/say.ts";
import { debianMirror } from "../../setup/images/debian-mirror.ts";
import { runStep } from "../../setup/run-step.ts";
import { withSetupLock } from "../../setup/setup-lock.ts";
import { LOG_DIR } from "../../setup/setup-log.ts";
import { GUEST_PACKAGES } from "./guest/packages.ts";

/** Guest images and what a run writes; safe to delete while no run is at work. */
export const CACHE = "/var/cache/airlock/vm";

const SOURCES = join(import.meta.dirname, "guest");
const AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt";
/** The host's mounts and processes stay out of reach of the build, and its own end with it. */
const CONFINED = ["--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"];

/** Files that qemu and ssh read: `root.img`, `vmlinuz`, `initrd` and `key`. */
export type GuestImage = { readonly folder: string };

/** The guest's image: the one that was built from the same inputs, else a new one (about 4 minutes). */
export async function ensureGuestImage(): Promise<GuestImage> {
  const mirror = debianMirror();
  const folder = join(CACHE, `debian13-${hashInputs(mirror)}`);
  return withSetupLock(async () => {
    if (existsSync(folder)) say(`the guest's image is there: ${folder}`);
    else await build(folder, mirror);
    return { folder };
  }, "airlock-vm-image");
}

function hashInputs(mirror: string): string {
  const hash = createHash("sha256").update(mirror);
  for (const name of readdirSync(SOURCES).sort()) hash.update(readFileSync(join(SOURCES, name)));
  if (existsSync(AUTHORITIES)) hash.update(readFileSync(AUTHORITIES));
  return hash.digest("hex").slice(0, 12);
}

async function build(folder: string, mirror: string): Promise<void> {
  mkdirSync(CACHE, { recursive: true });
  for (const name of readdirSync(CACHE)) {
    if (name.startsWith("debian13-")) rmSync(join(CACHE, name), { recursive: true });
  }
  const partial = `${folder}.partial`;
  mkdirSync(partial);
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", join(partial, "key")]);
  const script = join(SOURCES, "build.sh");
  await runStep({
    title: "building the Debian 13 guest (about 4 minutes)",
    command: "setpriv",
    args: [...CONFINED, "sh", script, partial, mirror, ...GUEST_PACKAGES],
    logFile: join(LOG_DIR, "vm-build.log"),
  });
  renameSync(partial, folder);
}
