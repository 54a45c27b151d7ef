import { spawnSync } from "node:child_process";
import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** The command of Compose here: Docker's plug-in, else Debian's package; undefined where there is none. */
export function composeCommand(): string[] | undefined {
  const plugin = spawnSync("docker", ["compose", "version"], { stdio: "ignore" });
  if (plugin.status === 0) return ["docker", "compose"];
  return hasCommand("docker-compose") ? ["docker-compose"] : undefined;
}

/** Makes sure of Compose for the test of compose.yaml: Debian's package, installed when missing. */
export async function ensureCompose(): Promise<void> {
  if (composeCommand()) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError("the test of compose.yaml needs docker compose: install it");
  }
  await withSetupLock(async () => {
    if (composeCommand()) return;
    await aptUpdate();
    await aptInstall(["docker-compose"]);
  });
}
