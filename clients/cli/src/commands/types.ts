import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { interruptible } from "../interrupt.ts";
import { addCommand, does, type Tool } from "../tool.ts";

/** Commands about job types and their images. */
export function addTypes(program: Command): void {
  addCommand(program, "types", "list job types").action(
    does(async ({ airlock, terminal }: Tool) => {
      const types = await airlock.api.listJobTypes();
      if (terminal.json) return terminal.document(types);
      terminal.table(
        [
          { title: "NAME" },
          { title: "PYTHON" },
          { title: "IMAGE" },
          { title: "MEMORY", right: true },
          { title: "PACKAGES" },
        ],
        types.map((type) => [
          type.name,
          type.python_version,
          type.image_exists ? "there" : "missing",
          type.memory_limit,
          type.requirements.join(" "),
        ]),
      );
    }),
  );

  addCommand(program, "build", "build the image of a job type, and show its log")
    .argument("<job-type>", "name of the job type")
    .option("--version-tag <tag>", "a version for the image, such as v1.2.3")
    .action(
      does(async (tool: Tool, name: string, { versionTag }: { versionTag?: string }) => {
        const { airlock, terminal } = tool;
        return interruptible(async (signal) => {
          const over = new AbortController();
          const shown = terminal.json ? undefined : showLog(tool, name, over.signal);
          try {
            const tag = versionTag === undefined ? {} : { versionTag };
            const result = await airlock.api.buildJobType({ name, ...tag }, { signal });
            over.abort();
            await shown;
            if (terminal.json) terminal.document(result);
            else terminal.note(`built ${result.version}`);
            return 0;
          } finally {
            over.abort();
          }
        });
      }),
    );
}

/** Writes the log of the running build as it grows. */
async function showLog({ airlock, terminal }: Tool, name: string, end: AbortSignal): Promise<void> {
  let written = 0;
  let begun: string | undefined;
  const before = await airlock.api.getBuild({ name }).catch(() => undefined);
  for (;;) {
    const isOver = end.aborted;
    const build = await airlock.api.getBuild({ name }).catch(() => undefined);
    // The last build's log stays until the new one begins.
    const isNew = build && (build.created_at !== before?.created_at || before.ended_at === null);
    if (build && isNew) {
      if (begun !== build.created_at) [begun, written] = [build.created_at, 0];
      const log = build.log;
      await terminal.writeError(log.slice(written));
      written = log.length;
    }
    if (isOver) return;
    await sleep(500, undefined, { signal: end }).catch(() => {});
  }
}
