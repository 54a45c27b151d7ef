import type { CallToolResult, ContentBlock, ResourceLink } from "@modelcontextprotocol/server";
import { encodeBase64 } from "hono/utils/encode";
import { z } from "zod";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { writeJsonInPieces } from "../../shared/json.ts";
import { ExecutionStatus, JobId } from "../../shared/wire/executions.ts";
import { JsonObjectSchema } from "../../shared/wire/fields.ts";
import { ConflictError, WaitTimeoutError } from "../typescript/src/errors.ts";
import type {
  Artifact,
  ExecutionRecord,
  JobStatus,
  ResultItem,
} from "../typescript/src/generated.ts";
import type { Verbs } from "../typescript/src/verbs.ts";

/** Largest picture that a result shows. */
const maxPictureBytes = 1024 * 1024;
const pictureTypes = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** A result shows at most so many pictures, and links at most so many files. */
const maxPictures = 8;
const maxLinks = 50;
/** Most bytes of pictures in a result: the Python client accepts events of 1 MiB, and base64 adds a third. */
const maxPicturesBytes = 512 * 1024;

export const File = z.object({
  name: z.string(),
  size_bytes: z.int(),
  content_type: z.string(),
  uri: z.string(),
});

/** Structured content of every result about a job. */
export const JobOutcome = z.object({
  job_id: JobId,
  status: ExecutionStatus,
  message: z.string().optional().describe("What to do next, or why the job waits."),
  exit_code: z.int().nullable().optional(),
  duration_ms: z.int().nullable().optional().describe("Run time of the code."),
  stdout: z.string().optional().describe("Long text is shortened: its head and tail are kept."),
  stderr: z.string().optional(),
  results: z
    .array(z.string())
    .optional()
    .describe("What the code showed, as text; the value of its last expression is the main one."),
  output: JsonObjectSchema.optional().describe(
    "The code's /output/result.json; left out if it is too long.",
  ),
  error: z
    .object({ type: z.string(), message: z.string(), phase: z.string() })
    .optional()
    .describe("Why the code did not succeed."),
  files: z.array(File).optional().describe(`At most ${maxLinks}; list_artifacts has all.`),
});
type JobOutcome = z.infer<typeof JobOutcome>;

/** The result of a job that has ended. Code that failed makes it an error result. */
export async function endedResult(
  airlock: Verbs,
  record: ExecutionRecord,
): Promise<CallToolResult> {
  const { execution_id: job_id, status, exit_code, duration_ms, artifacts = [] } = record;
  const error = record.error ?? undefined;
  const json = record.output === null ? "" : decodeUtf8(await writeJsonInPieces(record.output));
  const results = record.results ?? [];
  const texts = shareLength(
    {
      stdout: record.stdout,
      stderr: record.stderr,
      results: results.map(textOf).join("\n"),
      output: json,
      error: error?.message ?? "",
      warnings: (record.warnings ?? []).join("\n"),
      files: listFiles(artifacts.slice(0, maxLinks)),
    },
    maxTextLength - reserved,
  );
  const structuredContent: JobOutcome = {
    job_id,
    status,
    exit_code,
    duration_ms,
    stdout: texts.stdout,
    stderr: texts.stderr,
    ...(results.length > 0 && { results: cutTexts(results, texts.results.length) }),
    ...(record.output !== null && texts.output === json && { output: record.output }),
    ...(error && { error: { ...error, message: texts.error } }),
    ...(artifacts.length > 0 && { files: filesOf(job_id, artifacts.slice(0, maxLinks)) }),
  };
  const text = [
    `Job ${job_id}: ${status}${exit_code === null ? "" : `, exit code ${exit_code}`}, ${duration_ms ?? 0} ms.`,
    section("error", error && `${error.type} (${error.phase}): ${texts.error}`),
    section("warnings", texts.warnings),
    section("stdout", texts.stdout),
    section("stderr", texts.stderr),
    section("results", texts.results),
    section("output", texts.output),
    section("files, for read_artifact", texts.files),
    Object.values(texts).join("") === ""
      ? "It showed nothing: print() what you want to see, or end with an expression."
      : "",
    artifacts.length > maxLinks ? `${artifacts.length} files; list_artifacts has all.` : "",
  ];
  return {
    content: [
      { type: "text", text: text.filter(Boolean).join("\n") },
      ...showPictures(results),
      ...(await showFiles(airlock, job_id, artifacts)),
    ],
    structuredContent,
    isError: status !== "succeeded",
  };
}

const textOf = ({ data }: ResultItem): string => data["text/plain"] ?? Object.keys(data).join(", ");

/** The texts of the first items that have that many characters together. */
function cutTexts(results: ResultItem[], length: number): string[] {
  let left = length;
  const texts = results.map(textOf);
  return texts.filter((text) => (left -= text.length + 1) >= -1);
}

/** The first pictures that the code showed, as many as fit. */
function showPictures(results: ResultItem[]): ContentBlock[] {
  let left = (maxPicturesBytes * 4) / 3;
  const blocks: ContentBlock[] = [];
  for (const { data: forms } of results) {
    const mimeType = pictureTypes.find((type) => forms[type] !== undefined);
    const data = mimeType === undefined ? "" : forms[mimeType]!.replaceAll("\n", "");
    if (mimeType === undefined || data.length > left || blocks.length === maxPictures) continue;
    left -= data.length;
    blocks.push({ type: "image", data, mimeType });
  }
  return blocks;
}

/** Characters of the text beside the job's own. */
const reserved = 500;

/** The result of a job that goes on, with its output so far. */
export async function unfinishedResult(airlock: Verbs, job: JobStatus): Promise<CallToolResult> {
  const { job_id, status, message, cancel_requested } = job;
  const next = cancel_requested
    ? `The job is being cancelled: call get_job with job_id ${job_id} for its result.`
    : `The job goes on: call get_job with job_id ${job_id} for its result, or cancel_job.`;
  const [stdout, stderr] = await Promise.all([
    readOutput(airlock, job_id, "stdout"),
    readOutput(airlock, job_id, "stderr"),
  ]);
  const texts = shareLength({ stdout, stderr }, maxTextLength - reserved);
  const structuredContent: JobOutcome = {
    job_id,
    status,
    message: message === undefined ? next : `${message} ${next}`,
    ...texts,
  };
  const text = [
    `Job ${job_id}: ${status}. ${structuredContent.message}`,
    section("stdout so far", texts.stdout),
    section("stderr so far", texts.stderr),
  ];
  const content: ContentBlock[] = [{ type: "text", text: text.filter(Boolean).join("\n") }];
  return { content, structuredContent };
}

/**
 * The result of a job that is stored but cannot be read now. It names the job, so that the model does not
 * run the code again.
 */
export function unreadResult(jobId: string, error: unknown, was = "submitted"): CallToolResult {
  const reason = error instanceof Error ? error.message : String(error);
  const text = `Job ${jobId} was ${was}, but its result could not be read: ${reason}\nCall get_job with this job_id. Do not send the code again.`;
  return { content: [{ type: "text", text }], isError: true };
}

export function filesOf(jobId: string, artifacts: Artifact[]): z.infer<typeof File>[] {
  return artifacts.map(({ name, size_bytes, content_type }) => {
    return { name, size_bytes, content_type, uri: artifactUri(jobId, name) };
  });
}

export function isPicture({ content_type, size_bytes }: Artifact): boolean {
  return pictureTypes.includes(content_type) && size_bytes <= maxPictureBytes;
}

export async function pictureOf(
  airlock: Verbs,
  id: string,
  artifact: Artifact,
): Promise<ContentBlock> {
  const bytes = await airlock.artifacts.get(id, artifact.name);
  return { type: "image", data: base64(bytes), mimeType: artifact.content_type };
}

export function base64(bytes: Uint8Array): string {
  return encodeBase64(bytes.slice().buffer);
}

/** One line for each file. Not every client shows a model the links. */
export function listFiles(artifacts: Artifact[]): string {
  const lines = artifacts.map(
    ({ name, content_type, size_bytes }) => `${name} (${content_type}, ${size_bytes} bytes)`,
  );
  return lines.join("\n");
}

/** Pictures are shown while there is room; other files are links. */
async function showFiles(
  airlock: Verbs,
  id: string,
  artifacts: Artifact[],
): Promise<ContentBlock[]> {
  const pictures = new Set<Artifact>();
  let left = maxPicturesBytes;
  for (const artifact of artifacts.filter(isPicture)) {
    if (pictures.size === maxPictures || artifact.size_bytes > left) continue;
    pictures.add(artifact);
    left -= artifact.size_bytes;
  }
  const blocks: ContentBlock[] = [];
  for (const artifact of artifacts.slice(0, maxLinks)) {
    if (pictures.has(artifact)) blocks.push(await pictureOf(airlock, id, artifact));
    else blocks.push(artifactLink(id, artifact));
  }
  return blocks;
}

function section(title: string, text: string | undefined): string {
  return text ? `--- ${title}\n${text.replace(/\n$/, "")}` : "";
}

/** The record of a job, or undefined if it does not end within `waitS`. */
export function waitForRecord(
  airlock: Verbs,
  id: string,
  waitS: number,
  signal?: AbortSignal,
): Promise<ExecutionRecord | undefined> {
  return airlock.wait(id, { waitS, signal }).catch((error: unknown) => {
    if (error instanceof WaitTimeoutError) return undefined;
    throw error;
  });
}

export async function readStatus(airlock: Verbs, id: string): Promise<JobStatus> {
  return (await (await airlock.request(`/jobs/${id}`)).json()) as JobStatus;
}

/** What a job has written to a stream so far. */
async function readOutput(
  airlock: Verbs,
  id: string,
  stream: "stdout" | "stderr",
): Promise<string> {
  const answer = await airlock.request(`/jobs/${id}/logs?stream=${stream}`);
  return decodeUtf8(new Uint8Array(await answer.arrayBuffer()));
}

/** Cancels a job. One that has ended stays as it is. */
export async function cancel(airlock: Verbs, id: string): Promise<void> {
  await airlock.cancel(id).catch((error: unknown) => {
    if (!(error instanceof ConflictError)) throw error;
  });
}

export const artifactTemplate = "airlock://jobs/{id}/artifacts/{+name}";

function artifactUri(jobId: string, name: string): string {
  return `airlock://jobs/${jobId}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export function parseArtifactUri(uri: string): { jobId: string; name: string } | undefined {
  const [, jobId, path] = /^airlock:\/\/jobs\/([0-9a-f-]{36})\/artifacts\/(.+)$/i.exec(uri) ?? [];
  if (jobId === undefined || path === undefined) return undefined;
  try {
    return { jobId, name: decodeURIComponent(path) };
  } catch {
    return undefined;
  }
}

export function artifactLink(jobId: string, artifact: Artifact): ResourceLink {
  const { name, size_bytes: size, content_type: mimeType } = artifact;
  return { type: "resource_link", uri: artifactUri(jobId, name), name, mimeType, size };
}

/** Characters that a result shows of a job's text, all of it together. */
export const maxTextLength = 20_000;

/** A text of at most `length` characters: as it is, or its head and tail with a note between them. */
export function headAndTail(text: string, length: number): string {
  if (text.length <= length) return text;
  const note = `\n[… ${text.length - length} or more characters are left out here …]\n`;
  const half = Math.max(0, Math.floor((length - note.length) / 2));
  const [head, tail] = [half, text.length - half];
  // Neither the end of the head nor the beginning of the tail may be half of a character.
  const shown = [
    text.slice(0, head - isInside(text, head)),
    text.slice(tail + isInside(text, tail)),
  ];
  return shown.join(note).toWellFormed();
}

/** 1 if the place is between the two units of one character. */
function isInside(text: string, at: number): number {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff ? 1 : 0;
}

/**
 * Shortens texts so that all together have at most `length` characters. Short ones stay whole; the others
 * get equal shares of what is left.
 */
function shareLength<Name extends string>(
  texts: Record<Name, string>,
  length: number,
): Record<Name, string> {
  const names = (Object.keys(texts) as Name[]).toSorted(
    (a, b) => texts[a].length - texts[b].length,
  );
  const shortened = { ...texts };
  let left = length;
  for (const [i, name] of names.entries()) {
    shortened[name] = headAndTail(texts[name], Math.floor(left / (names.length - i)));
    left -= shortened[name].length;
  }
  return shortened;
}
