import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServiceOptions, startTestService } from "../../../../scripts/testing/test-service.ts";
import { atEndOfFile } from "../../../../shared/testing/end-of-file.ts";
import { commandFor } from "./run-command.ts";

/** A service with an agent, the command `airlock` for it, and a folder, until the test file ends. */
export async function startCommandService(options: ServiceOptions = {}) {
  const service = await startTestService(options);
  atEndOfFile(() => service[Symbol.asyncDispose]());
  await service.startAgent();
  const folder = mkdtempSync(join(service.folder, "command-"));
  const airlock = commandFor(service.url, options.key);
  return {
    service,
    folder,
    airlock,
    /** Puts a file into the folder; returns its path. */
    script: (name: string, code: string): string => {
      const path = join(folder, name);
      writeFileSync(path, code);
      return path;
    },
    /** Runs a job to its end, by the command itself; returns its id. */
    detached: async (code: string): Promise<string> => {
      const { stdout } = await airlock.run(["run", "-d", "-"], { stdin: code });
      const id = stdout.trim();
      await airlock.run(["logs", "-f", id]);
      return id;
    },
  };
}
