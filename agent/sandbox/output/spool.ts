import { createHash } from "node:crypto";
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { limits } from "../../../shared/wire/limits.ts";
import { isArtifactName } from "./artifact-name.ts";
import { FrameError } from "../protocol/frames.ts";
import type { FileHead, OutputSummary } from "../protocol/messages.ts";
import { readResultFile } from "./result-file.ts";
import type { ResultFile, SpooledArtifact } from "../report.ts";

/** Writes the files of one /output to numbered files of the agent as they arrive. */
export interface Spool {
  readonly artifacts: readonly SpooledArtifact[];
  readonly result: ResultFile;
  /** @throws FrameError on a head out of turn, over a cap or with an unsafe name. */
  begin(head: FileHead): Promise<void>;
  /** @throws FrameError on data that no head announced; file system errors as they are. */
  write(bytes: Buffer): Promise<void>;
  /** @throws FrameError if a file is not complete. */
  finish(summary: OutputSummary): void;
  /** Drops an incomplete file. */
  abandon(): Promise<void>;
}

/** Receives the bytes of one file; `keep` or `discard` ends it. */
interface Sink {
  write(bytes: Buffer): Promise<void>;
  keep(): Promise<void>;
  discard(): Promise<void>;
}

/** With `mayDrop`, a piece without bytes drops the file that has begun. */
export function openSpool(folder: string, maxBytes: number, mayDrop = false): Spool {
  const artifacts: SpooledArtifact[] = [];
  const names = new Set<string>();
  let hasResult = false;
  let result: ResultFile = { kind: "absent" };
  let bytesLeft = maxBytes;
  let begun = 0;
  let current: { sink: Sink; missingBytes: number } | null = null;

  async function artifactSink(name: string): Promise<Sink> {
    const path = join(folder, String(begun++));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = await open(path, "wx", 0o600);
    const hash = createHash("sha256");
    let sizeBytes = 0;
    return {
      async write(bytes) {
        hash.update(bytes);
        sizeBytes += bytes.length;
        await file.writeFile(bytes);
      },
      async keep() {
        await file.close();
        artifacts.push({ name, sizeBytes, sha256: hash.digest("hex"), path });
      },
      discard: () => file.close(),
    };
  }

  function resultSink(): Sink {
    const chunks: Buffer[] = [];
    return {
      async write(bytes) {
        chunks.push(bytes);
      },
      async keep() {
        const bytes = Buffer.concat(chunks);
        result = await readResultFile(bytes);
        if (result.kind === "object") return;
        names.add("result.json");
        const sink = await artifactSink("result.json");
        await sink.write(bytes);
        await sink.keep();
      },
      async discard() {},
    };
  }

  function check({ name, size, result }: FileHead): void {
    if (current !== null) throw new FrameError("a file inside another");
    if (result) {
      if (hasResult) throw new FrameError("a second result.json");
      if (size > limits.resultJsonMaxBytes) throw new FrameError("result.json over its cap");
      hasResult = true;
      return;
    }
    if (names.has(name)) throw new FrameError(`a second ${JSON.stringify(name)}`);
    names.add(name);
    if (!isArtifactName(name)) throw new FrameError(`an artifact named ${JSON.stringify(name)}`);
    bytesLeft -= size;
    // One more than the limit: an invalid result.json is kept in addition to the artifacts.
    if (bytesLeft < 0 || artifacts.length > limits.artifactCountMax) {
      throw new FrameError("artifacts over their cap");
    }
  }

  async function advance(byBytes: number): Promise<void> {
    if (current === null) return;
    current.missingBytes -= byBytes;
    if (current.missingBytes > 0) return;
    const { sink } = current;
    current = null;
    await sink.keep();
  }

  async function drop(): Promise<void> {
    const unfinished = current;
    current = null;
    await unfinished?.sink.discard();
  }

  return {
    artifacts,
    get result() {
      return result;
    },
    async begin(head) {
      check(head);
      const sink = head.result ? resultSink() : await artifactSink(head.name);
      current = { sink, missingBytes: head.size };
      await advance(0);
    },
    async write(bytes) {
      if (mayDrop && bytes.length === 0) return drop();
      // Empty pieces could go on forever.
      if (current === null || bytes.length === 0 || bytes.length > current.missingBytes) {
        throw new FrameError("file data that was not announced");
      }
      await current.sink.write(bytes);
      await advance(bytes.length);
    },
    finish({ result_problem }) {
      if (current !== null) throw new FrameError("a file that is cut short");
      if (result_problem !== null) {
        result = { kind: "invalid", problem: resultProblems[result_problem] ?? result_problem };
      }
    },
    abandon: drop,
  };
}

const resultProblems: Partial<Record<string, string>> = {
  not_a_regular_file: "it is not a regular file",
  hard_link: "it has more than one hard link",
  too_many_bytes: `it is larger than ${limits.resultJsonMaxBytes} bytes`,
  unreadable: "it cannot be read",
};
