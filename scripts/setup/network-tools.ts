import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** What the tests of partitions and the soak run, and the Debian packages that bring it. */
const commands = ["ip", "tc", "iptables", "nsenter"];
const packages = ["iproute2", "iptables", "util-linux"];

/** Makes sure of the tools that make networks and break them; installed when missing. */
export async function ensureNetworkTools(): Promise<void> {
  if (commands.every(hasCommand)) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError(
      `the tests of partitions need ${commands.join(", ")}: install them (sudo apt-get install ${packages.join(" ")}), then run this again`,
    );
  }
  await withSetupLock(async () => {
    if (commands.every(hasCommand)) return;
    await aptUpdate();
    await aptInstall(packages);
  });
}
