import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { say } from "../command/say.ts";

const RETRY_MS = 500;

/**
 * Runs `work` while holding the lock `name`, which only one process of this machine can hold. All
 * of set-up uses the default name. The lock is an abstract Linux socket, so the kernel frees it
 * however its owner ends.
 */
export async function withSetupLock<T>(work: () => Promise<T>, name = "airlock-setup"): Promise<T> {
  for (let waited = 0; ; waited += 1) {
    const lock = createServer().listen(`\0${name}`);
    try {
      await once(lock, "listening");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      if (waited === 0) say("another set-up is running on this machine, waiting for it");
      await sleep(RETRY_MS);
      continue;
    }
    try {
      return await work();
    } finally {
      lock.close();
    }
  }
}
