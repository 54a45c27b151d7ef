import { randomUUID } from "node:crypto";
import { createWriteStream, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { ConnectionError } from "../../../typescript/src/index.ts";
import { UsageError } from "../exit.ts";
import { makeFolder } from "../make-folder.ts";
import { showProgress } from "./progress.ts";
import type { Terminal } from "../terminal.ts";

/** Throws UsageError if something is at a path that a file must not replace. */
export function checkTarget(path: string, force: boolean): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new UsageError(`${path} is a folder: say the name of a file`);
  if (found && !found.isFile()) throw new UsageError(`${path} is not a regular file: it stays`);
  if (found && !force) throw new UsageError(`${path} exists; --force replaces it`);
}

/**
 * Saves the body of an answer as a file, which appears once it is whole.
 *
 * @param name What the progress says.
 * @throws ConnectionError if the connection breaks.
 */
export async function saveBody(
  terminal: Terminal,
  answer: Response,
  path: string,
  name: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  // No other file has this name. It is short: the file's own may be as long as a name can be.
  const partial = join(dirname(path), `.airlock-${randomUUID()}.part`);
  const size = Number(answer.headers.get("Content-Length"));
  const progress = showProgress(terminal, name, size);
  async function* body(): AsyncGenerator<Uint8Array> {
    try {
      for await (const part of Readable.fromWeb(answer.body as ReadableStream<Uint8Array>)) {
        progress.add((part as Uint8Array).length);
        yield part as Uint8Array;
      }
    } catch (error) {
      signal?.throwIfAborted();
      const message = `the connection broke while ${name} was fetched: try again`;
      throw new ConnectionError(message, { cause: error });
    }
  }
  try {
    makeFolder(dirname(path));
    await pipeline(body, createWriteStream(partial, { flags: "wx" }), { signal });
    renameSync(partial, path);
  } catch (error) {
    // An unread body would keep the command from ending.
    await answer.body?.cancel().catch(() => {});
    rmSync(partial, { force: true });
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new Error(`${path} cannot be written: ${error.message}`, { cause: error });
  } finally {
    progress.end();
  }
}
