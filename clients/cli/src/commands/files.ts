import { basename } from "node:path";
import type { Command } from "commander";
import { forEach } from "../for-each.ts";
import { interruptible } from "../interrupt.ts";
import { type SaveOptions, saveArtifacts } from "../files/save-artifacts.ts";
import { checkTarget, saveBody } from "../files/save-body.ts";
import { openFile } from "../files/open-file.ts";
import { plain } from "../terminal.ts";
import { showList, tenantColumn } from "../list.ts";
import { addCommand, does, type Tool } from "../tool.ts";
import { bytes } from "../words.ts";

/** Commands about files: those that jobs read, and those that they wrote. */
export function addFiles(program: Command): void {
  const files = addCommand(program, "files", "files that jobs can read");
  addCommand(files, "put", "upload a file")
    .argument("<path>", "the file")
    .option("--name <name>", "its name; default: the last part of its path")
    .action(
      does(async ({ airlock, terminal }: Tool, path: string, { name }: { name?: string }) => {
        const blob = await openFile(path, terminal);
        const stored = await airlock.files.upload(name ?? basename(path), blob);
        if (terminal.json) terminal.document(stored);
        else terminal.line(stored.file_id);
      }),
    );
  addCommand(files, "list", "files that are stored")
    .alias("ls")
    .action(
      does(async (tool: Tool) => {
        showList(tool, await tool.airlock.files.list(), "no files", {
          ID: ({ file_id }) => file_id,
          SIZE: ({ size_bytes }) => bytes(size_bytes),
          EXPIRES: ({ expires_at }) => expires_at.slice(0, 16),
          ...tenantColumn(tool),
          NAME: ({ name }) => name,
        });
      }),
    );
  addCommand(files, "get", "fetch a file")
    .argument("<file-id>", "its id, from airlock files list")
    .argument("<path>", "where to put it, or - for standard output")
    .option("--force", "replace a file that exists")
    .action(
      does(async (tool: Tool, id: string, path: string, { force }: { force?: boolean }) => {
        const { airlock, terminal } = tool;
        if (path !== "-") checkTarget(path, force === true);
        return interruptible(async (signal) => {
          const answer = await airlock.files.open(id, { signal });
          if (path !== "-") return saveBody(terminal, answer, path, path, signal);
          const parts = (answer.body ?? []) as AsyncIterable<Uint8Array>;
          for await (const part of parts) await terminal.write(part);
        });
      }),
    );
  addCommand(files, "rm", "remove files")
    .argument("<file-id...>", "their ids")
    .action(
      does(async (tool: Tool, ids: string[]) =>
        forEach(
          tool,
          ids,
          (id) => tool.airlock.files.delete(id),
          (_, id) => `${id} removed`,
        ),
      ),
    );

  addCommand(program, "artifacts", "files that a job wrote to /output")
    .argument("<job>", "id of the job, or the end of the id")
    .argument("[name...]", "with --out: which of them; default: all")
    .option("-o, --out <folder>", "fetch them into a folder")
    .option("--force", "replace files that exist")
    .action(
      does(
        async (
          tool: Tool,
          id: string,
          names: string[],
          options: { out?: string; force?: boolean },
        ) => {
          const { airlock } = tool;
          if (options.out !== undefined) {
            return fetchThem(tool, id, options.out, { names, force: options.force });
          }
          showList(tool, await airlock.artifacts.list(id), "no artifacts", {
            SIZE: ({ size_bytes }) => bytes(size_bytes),
            TYPE: ({ content_type }) => content_type,
            NAME: ({ name }) => name,
          });
        },
      ),
    );
}

async function fetchThem(
  tool: Tool,
  id: string,
  folder: string,
  options: SaveOptions,
): Promise<void> {
  const { terminal } = tool;
  return interruptible(async (signal) => {
    const saved = await saveArtifacts(tool, id, folder, { ...options, signal });
    if (terminal.json) terminal.document(saved);
    else for (const path of saved) terminal.line(plain(path));
  });
}
