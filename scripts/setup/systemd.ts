import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** Makes sure of systemd-analyze, which tells what a unit file is worth without systemd running. */
export async function ensureSystemdAnalyze(): Promise<void> {
  if (hasCommand("systemd-analyze")) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError("the tests of packaging/systemd need systemd-analyze: install systemd");
  }
  await withSetupLock(async () => {
    if (hasCommand("systemd-analyze")) return;
    await aptUpdate();
    await aptInstall(["systemd"]);
  });
}
