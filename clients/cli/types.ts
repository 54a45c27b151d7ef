import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type Build,
  type BuildResult,
  ConnectionError,
  NotFoundError,
} from "../typescript/src/index.ts";
import {
  exitCode,
  exitCodeOf,
  ExitError,
  explainFailure,
  interruptible,
  UsageError,
} from "./exit.ts";
import { readInput } from "./run.ts";
import { addCommand, forEach, given, showList, type Tool } from "./tool.ts";

/** Commands about job types and their images. */
export function addTypes(program: Command): void {
  const types = addCommand(program, "types", "list job types");
  types.does(async (tool) => {
    showList(tool, await tool.airlock.api.listJobTypes(), "no job types", {
      NAME: ({ name }) => name,
      PYTHON: ({ python_version }) => python_version,
      IMAGE: ({ image_exists }) => (image_exists ? "there" : "missing"),
      MEMORY: ({ memory_limit }) => memory_limit,
      PRESET: ({ preset }) => preset ?? "",
      PACKAGES: ({ apt, requirements, npm }) => [...apt, ...requirements, ...npm].join(" "),
    });
  });

  addCommand(types.command, "set", "make or change a job type of your tenant")
    .argument("<job-type>", "your tenant's name, a dot and a word, such as search.report")
    .argument("<definition>", 'a JSON object, such as \'{"preset": "science"}\', or @file')
    .does(async (tool, name, definition) => {
      const ownJobType = await readInput(definition, "the definition");
      const set = forEach(
        ({ api }) => api.putJobType({ name, ownJobType }),
        (made) => `${made.name} is set`,
      );
      return set(tool, [name]);
    });

  addCommand(types.command, "remove|rm", "remove job types of your tenant; jobs that wait fail")
    .argument("<job-type...>", "their names")
    .does(
      forEach(
        ({ api }, name) => api.deleteJobType({ name }),
        (_, name) => `${name} is removed`,
      ),
    );

  addCommand(program, "build", "build the image of a job type, and show its log")
    .argument("[job-type]", "name of the job type")
    .option("--all", "build every job type whose image no agent has")
    .option("--log", "only show the log of its last build, also while that runs")
    .option("--version-tag <tag>", "a version for the image, such as v1.2.3")
    .does(async (tool, name, { all, log, versionTag }) =>
      interruptible(async (signal) => {
        if ((name === undefined) !== (all === true))
          throw new UsageError("give a job type or --all");
        if (log) {
          if (all || versionTag !== undefined) throw new UsageError("--log takes a job type alone");
          return showLog(tool, name!);
        }
        try {
          return await (all
            ? buildAll(tool, versionTag, signal)
            : build(tool, name!, versionTag, signal));
        } catch (error) {
          if (!signal.aborted) throw error;
          throw new ExitError(exitCode.interrupted, "left; a build that has begun goes on");
        }
      }),
    );
}

async function showLog({ airlock, terminal }: Tool, name: string): Promise<void> {
  const last = await airlock.api.getBuild({ name });
  if (terminal.json) return terminal.document(last);
  await terminal.write(last.log);
  const outcome = last.version ?? last.error?.message;
  terminal.note(outcome === undefined ? last.status : `${last.status}: ${outcome}`);
}

/** Builds one after the other. One that fails does not keep the others from it. */
async function buildAll(
  tool: Tool,
  versionTag: string | undefined,
  signal: AbortSignal,
): Promise<number> {
  const { airlock, terminal } = tool;
  const missing = (await airlock.api.listJobTypes()).filter((type) => !type.image_exists);
  const built: BuildResult[] = [];
  const keep = (result: BuildResult): void => void built.push(result);
  let code = 0;
  for (const { name } of missing) {
    terminal.note(`building ${name}`);
    const one = await build(tool, name, versionTag, signal, keep).catch((error: unknown) => {
      signal.throwIfAborted();
      terminal.note(`airlock: ${explainFailure(error)}`);
      return exitCodeOf(error);
    });
    code = Math.max(code, one);
  }
  if (terminal.json) terminal.document(built);
  else if (missing.length === 0) terminal.note("every job type has its image");
  return code;
}

async function build(
  tool: Tool,
  name: string,
  versionTag: string | undefined,
  signal: AbortSignal,
  show = (result: BuildResult): void => tool.terminal.document(result),
): Promise<number> {
  const { airlock, terminal } = tool;
  const over = new AbortController();
  // If the log cannot be followed, the request for the build fails too, and says why.
  const followed = followBuild(tool, name, AbortSignal.any([signal, over.signal])).catch(
    () => undefined,
  );
  try {
    const request = { name, ...given({ versionTag }) };
    const result = await airlock.api.buildJobType(request, { signal });
    over.abort();
    await followed;
    if (terminal.json) show(result);
    else terminal.note(`built ${result.version}`);
    return 0;
  } catch (error) {
    // A build may take longer than a connection lives.
    if (!(error instanceof ConnectionError)) over.abort();
    const ended = await followed;
    signal.throwIfAborted();
    if (!ended || terminal.json) throw error;
    if (ended.status === "built") terminal.note(`built ${ended.version}`);
    else terminal.note(`airlock: ${name} was not built: the end of its log says why`);
    return ended.status === "built" ? 0 : exitCode.failed;
  }
}

/**
 * Writes the log of the build that begins as it grows, to the end of that build or until `end`.
 *
 * @returns The build if it has ended.
 * @throws ConnectionError if the service is gone.
 */
async function followBuild(
  { airlock, terminal }: Tool,
  name: string,
  end: AbortSignal,
): Promise<Build | undefined> {
  const last = async (): Promise<Build | undefined> => {
    try {
      return await airlock.api.getBuild({ name });
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  };
  let written = 0;
  let begun: string | undefined;
  const before = await last();
  for (;;) {
    const isOver = end.aborted;
    const found = await last();
    // The last build's log stays until the new one begins.
    const isNew = found && (found.created_at !== before?.created_at || before.ended_at === null);
    if (isNew) {
      if (begun !== found.created_at) [begun, written] = [found.created_at, 0];
      if (!terminal.json) await terminal.writeError(found.log.slice(written));
      written = found.log.length;
      if (found.ended_at !== null) return found;
    }
    if (isOver) return undefined;
    await sleep(500, undefined, { signal: end }).catch(() => {});
  }
}
