import { describeFailure, exitCodeOf, explainFailure } from "./exit.ts";
import type { Tool } from "./tool.ts";

/**
 * Does the work for each id, also after one has failed, and says what became of it.
 *
 * @returns The exit code of the first failure, or 0.
 */
export async function forEach<T>(
  { terminal, listing }: Tool,
  ids: readonly string[],
  work: (id: string) => Promise<T>,
  tell: (done: T, id: string) => string,
): Promise<number> {
  const all: unknown[] = [];
  let code = 0;
  for (const id of ids) {
    try {
      const done = await work(id);
      if (!terminal.json) terminal.line(tell(done, id));
      all.push(done ?? { id });
    } catch (error) {
      code ||= exitCodeOf(error);
      if (!terminal.json) terminal.note(`airlock: ${explainFailure(error, listing)}`);
      all.push({ id, ...describeFailure(error) });
    }
  }
  if (terminal.json) terminal.document(all);
  return code;
}
