import {
  type CallToolResult,
  type ReadResourceResult,
  ResourceNotFoundError,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { JobId } from "../../../shared/wire/execution.ts";
import { NotFoundError } from "../../typescript/src/transport/errors.ts";
import type { Artifact, Problem } from "../../typescript/src/generated.ts";
import type { Verbs } from "../../typescript/src/verbs.ts";
import { artifactLink, parseArtifactUri } from "./artifact-uri.ts";
import { tool } from "./call.ts";
import { headAndTail, maxTextLength } from "./capped-text.ts";
import { base64, File, filesOf, isPicture, listFiles, pictureOf } from "./result.ts";

/** Largest file that is read whole: in base64 it stays below the 10 MB that clients accept of a message. */
export const maxResourceBytes = 5 * 1024 * 1024;

export const listArtifacts = tool({
  name: "list_artifacts",
  title: "List the files of a job",
  describe: () => "Lists every file that a job wrote to /output, once it has ended.",
  input: z.strictObject({ job_id: JobId }),
  output: z.object({ files: z.array(File) }),
  isReadOnly: true,
  async run({ airlock }, { job_id }) {
    const artifacts = await airlock.artifacts.list(job_id);
    const files = filesOf(job_id, artifacts);
    const text = headAndTail(listFiles(artifacts), maxTextLength) || "The job has no files.";
    return { content: [{ type: "text", text }], structuredContent: { files } };
  },
});

export const readArtifactTool = tool({
  name: "read_artifact",
  title: "Read a file of a job",
  describe: () =>
    `Reads a file that a job wrote to /output. Text comes in parts of at most ${maxTextLength} bytes: pass \`next_offset\` as \`offset\` for the next. Pictures up to 1 MiB come as images, other files as links.`,
  input: z.strictObject({
    job_id: JobId,
    name: z.string().min(1).describe("Name of the file, relative to /output."),
    offset: z.int().min(0).default(0).describe("Byte at which the text starts."),
  }),
  output: File.extend({
    text: z.string().optional().describe("Left out if the file is not text."),
    next_offset: z.int().optional().describe("Left out at the end of the file."),
  }),
  isReadOnly: true,
  async run({ airlock }, { job_id, name: given, offset }): Promise<CallToolResult> {
    const name = given.replace(/^\/output\//, "");
    const artifact = await findArtifact(airlock, job_id, name);
    const [file] = filesOf(job_id, [artifact]);
    if (isPicture(artifact)) {
      return {
        content: [await pictureOf(airlock, job_id, artifact)],
        structuredContent: { ...file },
      };
    }
    const part = await readText(airlock, job_id, artifact, offset);
    if (part === undefined) {
      const text = `${name} is not text. ${howToUse(job_id, name)}`;
      return {
        content: [{ type: "text", text }, artifactLink(job_id, artifact)],
        structuredContent: { ...file },
      };
    }
    const { text, end } = part;
    const more = end < artifact.size_bytes ? { next_offset: end } : {};
    const note = `[bytes ${offset} to ${end} of ${artifact.size_bytes}; next_offset: ${end}]`;
    return {
      content: [
        { type: "text", text },
        ...("next_offset" in more ? [{ type: "text" as const, text: note }] : []),
      ],
      structuredContent: { ...file, text, ...more },
    };
  },
});

/** A whole file, as text if it is text. */
export async function readResource(airlock: Verbs, uri: string): Promise<ReadResourceResult> {
  const place = parseArtifactUri(uri);
  if (!place) throw new ResourceNotFoundError(uri);
  const { jobId, name } = place;
  const artifact = await findArtifact(airlock, jobId, name);
  if (artifact.size_bytes > maxResourceBytes) {
    throw new ResourceNotFoundError(
      uri,
      `${name} has ${artifact.size_bytes} bytes, and at most ${maxResourceBytes} can be read at once. Read text in parts with read_artifact. ${howToUse(jobId, name)}`,
    );
  }
  const bytes = await airlock.artifacts.get(jobId, name);
  const text = asText(bytes);
  const mimeType = artifact.content_type;
  const body = text === undefined ? { blob: base64(bytes) } : { text };
  return { contents: [{ uri, mimeType, ...body }] };
}

/** What a model can do with a file that it cannot be shown. */
function howToUse(jobId: string, name: string): string {
  const artifact = JSON.stringify({ job_id: jobId, name });
  return `To use it in code, pass it to execute_code in files, with "artifact": ${artifact}. Or download it: GET /jobs/${jobId}/artifacts/${name}.`;
}

async function findArtifact(airlock: Verbs, jobId: string, name: string): Promise<Artifact> {
  const artifact = (await airlock.artifacts.list(jobId)).find((one) => one.name === name);
  if (artifact) return artifact;
  const detail = `Job ${jobId} has no file ${name}; see list_artifacts.`;
  throw new NotFoundError(404, detail, { problem: { code: "not_found", detail } as Problem });
}

/** The part of a text that starts at `offset`, up to a whole character; undefined if it is no text. */
async function readText(
  airlock: Verbs,
  jobId: string,
  { name, size_bytes }: Artifact,
  offset: number,
): Promise<{ text: string; end: number } | undefined> {
  if (offset >= size_bytes) return { text: "", end: size_bytes };
  const range = `bytes=${offset}-${offset + maxTextLength - 1}`;
  const bytes = await airlock.artifacts.get(jobId, name, { headers: { Range: range } });
  const isEnd = offset + bytes.length >= size_bytes;
  const whole = isEnd ? bytes : bytes.subarray(0, wholeCharacters(bytes));
  const text = asText(whole);
  return text === undefined ? undefined : { text, end: offset + whole.length };
}

/** Bytes up to the last character that is complete in UTF-8. */
function wholeCharacters(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(4, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!;
    if (byte < 0x80) return bytes.length - back + 1;
    if (byte < 0xc0) continue;
    const length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return back >= length ? bytes.length - back + length : bytes.length - back;
  }
  return bytes.length;
}

function asText(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
