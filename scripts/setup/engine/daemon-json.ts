import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { OperatorError } from "../../command/operator-error.ts";
import { say } from "../../command/say.ts";

const DAEMON_JSON = "/etc/docker/daemon.json";

/**
 * `--network=none`: Debian's runsc cannot set up its network on recent kernels, and jobs need none.
 */
const RUNSC = { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] };

type DaemonConfig = { runtimes?: Record<string, unknown>; [key: string]: unknown };

/** The text of daemon.json with the runtime runsc added; undefined if it has that runtime. */
export function addRunsc(text: string | undefined): string | undefined {
  const config = (text?.trim() ? JSON.parse(text) : {}) as DaemonConfig;
  if (config.runtimes?.["runsc"]) return undefined;
  const runtimes = { ...config.runtimes, runsc: RUNSC };
  return `${JSON.stringify({ ...config, runtimes }, null, 2)}\n`;
}

/** Adds runsc to dockerd's configuration. Returns whether the file was changed. */
export function registerRunsc(file = DAEMON_JSON): boolean {
  const before = readIfThere(file);
  let after: string | undefined;
  try {
    after = addRunsc(before);
  } catch (cause) {
    throw new OperatorError(
      `${file} is not valid JSON: correct or remove it, then run this again`,
      {
        cause,
      },
    );
  }
  if (after === undefined) return false;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, after);
  say(`${before === undefined ? "wrote" : "added the runtime runsc to"} ${file}`);
  return true;
}

function readIfThere(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
