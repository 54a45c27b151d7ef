import { existsSync } from "node:fs";
import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** Where Debian's python3-swift is; it brings no service that would start. */
const SWIFT = "/usr/lib/python3/dist-packages/swift";

/** Makes sure of the S3 service that the tests of the artifact store run: Debian's OpenStack Swift. */
export async function ensureSwift(): Promise<void> {
  if (existsSync(SWIFT)) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError(
      "the tests of the S3 artifact store need OpenStack Swift: install it (sudo apt-get install python3-swift), then run this again",
    );
  }
  await withSetupLock(async () => {
    if (existsSync(SWIFT)) return;
    await aptUpdate();
    await aptInstall(["python3-swift"]);
  });
}
