import { existsSync } from "node:fs";
import { OperatorError } from "../command/operator-error.ts";
import { aptInstall, aptUpdate, hasCommand } from "./install-engine.ts";
import { withSetupLock } from "./setup-lock.ts";

/** Where Debian's package puts the browser. */
export const CHROMIUM = "/usr/bin/chromium";

/** Makes sure of the browser that the tests of /docs drive: Debian's package, installed when missing. */
export async function ensureChromium(): Promise<void> {
  if (existsSync(CHROMIUM)) return;
  if (process.getuid?.() !== 0 || !hasCommand("apt-get")) {
    throw new OperatorError(
      `the tests of the docs page need ${CHROMIUM}: install it (sudo apt-get install chromium), then run this again`,
    );
  }
  await withSetupLock(async () => {
    if (existsSync(CHROMIUM)) return;
    await aptUpdate();
    await aptInstall(["chromium"]);
  });
}
