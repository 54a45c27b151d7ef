import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** What the tests of Podman run, and the Debian packages that bring it; uidmap is for rootless ones. */
const commands = ["podman", "runc", "newuidmap"];
const packages = ["podman", "runc", "uidmap"];

/** Makes sure of the Podman that tests start: Debian's package, installed when missing. */
export async function ensurePodman(): Promise<void> {
  if (commands.every(hasCommand)) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError(
      `the tests of Podman need ${commands.join(", ")}: install them (sudo apt-get install ${packages.join(" ")}), then run this again`,
    );
  }
  await withSetupLock(async () => {
    if (commands.every(hasCommand)) return;
    await aptUpdate();
    await aptInstall(packages);
  });
}
