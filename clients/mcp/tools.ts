import {
  type CallToolResult,
  type ReadResourceResult,
  ResourceNotFoundError,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { parseJsonInPieces } from "../../shared/json.ts";
import { isTerminal, JobId } from "../../shared/wire/executions.ts";
import { InputFile } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import { CallRequest, Session, SessionRequest, SessionStatus } from "../../shared/wire/sessions.ts";
import { ExecuteRequest } from "../../shared/wire/submissions.ts";
import { NotFoundError } from "../typescript/src/errors.ts";
import type { Artifact, JobType, Problem } from "../typescript/src/generated.ts";
import type { JobEvent } from "../typescript/src/jobs.ts";
import { transport } from "../typescript/src/transport.ts";
import { type Verbs, verbs } from "../typescript/src/verbs.ts";
import {
  artifactLink,
  base64,
  cancel,
  endedResult,
  File,
  filesOf,
  headAndTail,
  isPicture,
  JobOutcome,
  listFiles,
  maxTextLength,
  parseArtifactUri,
  pictureOf,
  readStatus,
  unfinishedResult,
  unreadResult,
  waitForRecord,
} from "./results.ts";

/** Sends a request to the public HTTP interface: `fetch` with a path instead of an address. */
export type Api = (path: string, init?: RequestInit) => Promise<Response>;

/** The TypeScript client for a service in this process, without a network. */
export function clientOf(api: Api): Verbs {
  return verbs(
    transport({
      url: "",
      retries: 0,
      fetch: (path, init) => api(path as string, init),
      parse: parseAnswer,
    }),
  );
}

/** Reads an answer of the service. Numbers of the code's output stay as they were written. */
export const parseAnswer = (text: string): Promise<unknown> =>
  parseJsonInPieces(text, { depth: 2 * limits.jsonDepthMax });

/** One call of a tool. */
export interface Call {
  airlock: Verbs;
  /** Aborts when the client cancels the call, or its connection ends. */
  signal: AbortSignal;
  /** Tells the client how far the call is; undefined if it did not ask. */
  report: ((progress: number, message: string) => Promise<void>) | undefined;
  /** Metadata of the jobs that the call makes, by which a later request finds them. */
  metadata: Record<string, string>;
  /** Whether an aborted signal means that the client wants the job to end. */
  abortCancels: () => boolean;
  /** Has the platform wait for work that no answer waits for. */
  keep: (work: Promise<unknown>) => void;
}

export interface Tool {
  name: string;
  title: string;
  describe: (facts: Facts) => string;
  input: z.ZodObject;
  output: z.ZodObject;
  isReadOnly: boolean;
  run: (call: Call, input: never) => Promise<CallToolResult>;
}

/** Checks that the types of a tool's parts fit each other. */
function tool<Input extends z.ZodObject>(
  definition: Omit<Tool, "input" | "run"> & {
    input: Input;
    run: (call: Call, input: z.infer<Input>) => Promise<CallToolResult>;
  },
): Tool {
  return definition;
}

/** Clients give up after 60 s; the rest is for the way. */
const WaitSeconds = z
  .int()
  .min(0)
  .max(50)
  .default(45)
  .describe("Seconds to wait for the end. A job that takes longer goes on.");

/** Waits for a job's end, at most `waitS`, and reports progress meanwhile. */
async function follow(call: Call, id: string, waitS: number): Promise<CallToolResult> {
  const { airlock, signal } = call;
  const stopReporting = startReporting(call, id);
  try {
    return await resultOf(airlock, id, waitS, signal);
  } finally {
    stopReporting();
  }
}

/** The result of a job if it ends within `waitS`, else what it has written so far. */
async function resultOf(
  airlock: Verbs,
  id: string,
  waitS: number,
  signal?: AbortSignal,
): Promise<CallToolResult> {
  const record = await waitForRecord(airlock, id, waitS, signal);
  if (record) return endedResult(airlock, record);
  const job = await readStatus(airlock, id);
  // It may have ended since.
  return isTerminal(job.status) ? resultOf(airlock, id, 1, signal) : unfinishedResult(airlock, job);
}

/** Submits a job, and follows it. If the call is cancelled meanwhile, so is the job. */
async function submitAndFollow(
  call: Call,
  submit: () => Promise<{ job_id: string }>,
  waitS: number,
): Promise<CallToolResult> {
  const { job_id } = await submit();
  const end = cancelOnAbort(call, job_id);
  try {
    return await follow(call, job_id, waitS);
  } catch (error) {
    if (call.signal.aborted) throw error;
    return unreadResult(job_id, error);
  } finally {
    end();
  }
}

/**
 * Cancels the job when the call is cancelled, until the returned function is called. The signal also
 * fires after a call has been answered, when the job may go on.
 */
function cancelOnAbort(call: Call, jobId: string): () => void {
  const { airlock, signal, abortCancels, keep } = call;
  const onAbort = (): void => {
    if (abortCancels()) keep(cancel(airlock, jobId));
  };
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return () => signal.removeEventListener("abort", onAbort);
}

const fileFields = InputFile.shape;

/** A file that a call of a tool gives to code. The service checks that it has exactly one source. */
const givenFile = (about: string) =>
  z.strictObject({
    name: fileFields.name.describe(about),
    text: fileFields.text.describe("The content, as text."),
    base64: fileFields.base64.describe("The content in base64, for files that are not text."),
    file_id: fileFields.file_id.describe("Id of a file that was uploaded with POST /files."),
    artifact: z
      .strictObject({
        job_id: JobId,
        name: z.string().min(1).describe("Name of the file, as in list_artifacts."),
      })
      .optional()
      .describe("A file that an earlier job wrote to /output."),
  });

const executeFields = ExecuteRequest.shape;

const GivenFile = givenFile(
  "Path under /input, such as tables/prices.csv. It must not be data.json or begin with _.",
);

const executeInput = z.strictObject({
  code: executeFields.code.describe("Source."),
  language: executeFields.language.describe(
    "Language of the code, such as bash or cpp, if the image has its program; default: python.",
  ),
  input_data: executeFields.input_data
    .optional()
    .meta({ type: "object", description: "JSON for the code, at /input/data.json." }),
  files: z
    .array(GivenFile)
    .max(limits.inputFilesMax)
    .optional()
    .describe(
      `Files for the code, at /input/<name>, read-only; at most ${limits.inputFilesMax}. Each has a name and exactly one of text, base64, file_id and artifact. Text, base64 and stdin count toward the size of the request: at most 10 MiB, unless the operator sets another limit.`,
    ),
  stdin: executeFields.stdin.describe(
    "What the code reads from standard input, such as with input(). Without it, standard input is empty.",
  ),
  args: executeFields.args.describe(
    `Arguments of the code: sys.argv[1:]; at most ${limits.argsMaxBytes / 1024} KiB together.`,
  ),
  job_type: z.string().optional().describe("Name of a job type; default: `default`."),
  timeout: executeFields.timeout.describe("Time limit of the code in seconds."),
  requirements: executeFields.requirements
    .optional()
    .describe("Packages to install first (PEP 508); only if the operator allows it."),
  wait_seconds: WaitSeconds,
});

export const executeCode = tool({
  name: "execute_code",
  title: "Run code",
  describe: describeExecute,
  input: executeInput,
  output: JobOutcome,
  isReadOnly: false,
  async run(call, { wait_seconds, ...request }) {
    const isPython = (request.language ?? "python") === "python";
    const job = {
      ...request,
      ...(isPython && { results: true }),
      metadata: call.metadata,
    };
    return submitAndFollow(call, () => call.airlock.submit(job), wait_seconds);
  },
});

function describeExecute(facts: Facts): string {
  return `Runs Python code in a new isolated container and returns what it wrote. Nothing is kept from one call to the next: no variables, no files.
- stdout and stderr come back; of long text, the head and the tail. Python code runs like a cell of a notebook: the value of its last expression is shown, and what it passes to display(). \`await\` works outside functions; magics (%, !) do not.
- \`input_data\` is at /input/data.json, each of \`files\` at /input/<name>; \`stdin\` is the code's standard input, \`args\` are its sys.argv[1:].
- A JSON object written to /output/result.json comes back as \`output\`.
- Every other file written to /output is kept: pictures (PNG, JPEG, GIF, WebP, together up to 512 KiB) come back as images; so do matplotlib's figures (plt.show()). Other files as links, for read_artifact.
- \`language\` runs other languages than Python where the image has them; \`stdin\`, \`args\`, files and /output are the same.
- To go on with a file of an earlier job, name it in \`files\`: {"name": "table.csv", "artifact": {"job_id": "…", "name": "table.csv"}}.
- /output is the working directory. /tmp is writable too, everything else is not. There is no network, and pip cannot be called, unless the operator allows it.
- A job that takes longer than \`wait_seconds\` goes on. The answer then has its job_id: call get_job with it.
${describeJobTypes(facts)}`;
}

const { session_id } = Session.shape;
const callFields = CallRequest.shape;
const sessionFields = SessionRequest.shape;

const SessionState = z.object({
  session_id,
  status: SessionStatus,
  message: z.string().optional().describe("Why it waits."),
});

export const createSession = tool({
  name: "create_session",
  title: "Start a session",
  describe: (facts) =>
    `Starts a session: a Python interpreter in a container of its own, which keeps variables, imports and files from one call of run_in_session to the next. End it with close_session once it is no longer needed.
${describeJobTypes(facts)}`,
  input: z.strictObject({
    job_type: z.string().optional().describe("Name of a job type; default: `default`."),
    requirements: sessionFields.requirements
      .optional()
      .describe("Packages to install first (PEP 508); only if the operator allows it."),
    idle_timeout: sessionFields.idle_timeout.describe(
      "Seconds without a call after which it ends by itself.",
    ),
    wait_seconds: z.int().min(0).max(50).default(30).describe("Seconds to wait until it is ready."),
  }),
  output: SessionState,
  isReadOnly: false,
  async run({ airlock }, { wait_seconds: wait, ...request }): Promise<CallToolResult> {
    // The session is described by this answer: a key of the scope `run` alone may not read what it has made.
    const body = JSON.stringify({ ...request, wait });
    const made = await airlock.request(
      "/sessions",
      { method: "POST", body, headers: { "Content-Type": "application/json" } },
      { timeoutMs: 60_000 + wait * 1000 },
    );
    const { session_id: id, status, message } = (await made.json()) as Session;
    const waits = message ?? "Calls of run_in_session wait for it.";
    const text = `Session ${id}: ${status}.${status === "ready" ? "" : ` ${waits}`}`;
    const structuredContent = { session_id: id, status, ...(message && { message }) };
    return { content: [{ type: "text", text }], structuredContent };
  },
});

export const runInSession = tool({
  name: "run_in_session",
  title: "Run code in a session",
  describe: () =>
    `Runs Python code in a session, like a cell of a notebook: variables, imports and files of earlier calls are there. The value of the last expression is shown, and what is passed to display(); matplotlib's figures come back as images.
- /output is the working directory. Files that the call wrote there come back, too: pictures as images, others as links for read_artifact.
- Calls run one at a time. Code that fails or exceeds its time limit keeps the variables.
- If the interpreter itself has ended (error interpreter_ended), call with \`restart\`: its variables are gone, files are not.
- A call that takes longer than \`wait_seconds\` goes on. The answer then has its job_id: call get_job or cancel_job with it.`,
  input: z.strictObject({
    session_id: session_id.describe("Id of the session, from create_session."),
    code: callFields.code.describe("Source."),
    restart: z.boolean().optional().describe("Start the interpreter anew before the code."),
    files: z
      .array(givenFile("Path under /output, such as tables/prices.csv."))
      .max(limits.inputFilesMax)
      .optional()
      .describe(
        "Files to write into the working directory before the code runs. Each has a name and exactly one of text, base64, file_id and artifact.",
      ),
    stdin: callFields.stdin.describe("What the code reads with input()."),
    timeout: callFields.timeout.describe("Time limit of the code in seconds."),
    wait_seconds: WaitSeconds,
  }),
  output: JobOutcome,
  isReadOnly: false,
  run(call, { session_id: id, wait_seconds, files = [], ...request }) {
    const written = files.map((file) => ({ ...file, to: "work" as const }));
    const job = { ...request, files: written, metadata: call.metadata };
    const { submit } = call.airlock.sessions.attach(id);
    return submitAndFollow(call, () => submit(job), wait_seconds);
  },
});

export const closeSession = tool({
  name: "close_session",
  title: "End a session",
  describe: () =>
    "Ends a session: its variables and files are gone. A call that runs is cancelled.",
  input: z.strictObject({ session_id }),
  output: z.object({ session_id, status: SessionStatus }),
  isReadOnly: false,
  async run({ airlock }, { session_id: id }): Promise<CallToolResult> {
    await airlock.sessions.attach(id).close();
    const text = `Session ${id} has ended.`;
    const structuredContent = { session_id: id, status: "ended" };
    return { content: [{ type: "text", text }], structuredContent };
  },
});

export const getJob = tool({
  name: "get_job",
  title: "Wait for a job and get its result",
  describe: () =>
    "Returns the status of a job, and the same result as execute_code once it has ended. Waits for the end, at most `wait_seconds`.",
  input: z.strictObject({ job_id: JobId, wait_seconds: WaitSeconds }),
  output: JobOutcome,
  isReadOnly: true,
  run: (call, { job_id, wait_seconds }) => follow(call, job_id, wait_seconds),
});

/** Time for the agent to end the code and fetch its files. It learns of the cancellation at once. */
const endsWithinS = 5;

export const cancelJob = tool({
  name: "cancel_job",
  title: "Cancel a job",
  describe: () =>
    "Ends a queued or running job, and returns what it has written. A job that has ended stays as it is.",
  input: z.strictObject({ job_id: JobId }),
  output: JobOutcome,
  isReadOnly: false,
  async run({ airlock }, { job_id }) {
    await cancel(airlock, job_id);
    try {
      // A job that did not succeed is no error of this tool.
      return { ...(await resultOf(airlock, job_id, endsWithinS)), isError: false };
    } catch (error) {
      return unreadResult(job_id, error, "cancelled");
    }
  },
});

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

const reportEveryMs = 2000;
/** Characters of the newest output in a report. */
const newestLength = 500;

/** Reports the job's events to the client as progress, until the returned function is called. */
export function startReporting({ airlock, report }: Call, jobId: string): () => void {
  if (!report) return () => {};
  const startedAt = Date.now();
  const ending = new AbortController();
  const seen = { state: "queued", newest: "" };
  let last = 0;
  const tell = (): void => {
    const message = `Job ${jobId}: ${seen.state}\n${seen.newest}`.toWellFormed();
    // The protocol wants progress to increase with each report.
    last = Math.max(last + 0.001, (Date.now() - startedAt) / 1000);
    report(last, message).catch(() => {});
  };
  // Clients that ask for progress may give up a call that reports none.
  const timer = setInterval(tell, reportEveryMs);
  const watch = async (): Promise<void> => {
    for await (const event of airlock.stream(jobId, { signal: ending.signal })) {
      const { state } = seen;
      note(seen, event);
      if (seen.state !== state) tell();
    }
  };
  // If the events fail, reports repeat the last known state, and the call itself returns the error.
  watch().catch(() => {});
  return () => {
    clearInterval(timer);
    ending.abort();
  };
}

function note(seen: { state: string; newest: string }, event: JobEvent): void {
  if (event.event === "status") {
    seen.state = event.data.status === "queued" ? event.data.reason : event.data.status;
  } else if (event.event === "stdout" || event.event === "stderr") {
    seen.newest = (seen.newest + event.data.text).slice(-newestLength);
  } else if (event.event === "retry") seen.newest = "";
}

/** What the service is configured to do; parts are missing when the service cannot be asked. */
export interface Facts {
  jobTypes: JobType[];
  maxTimeoutS: number | undefined;
}

type Document = {
  components: {
    schemas: { ExecuteRequest: { properties: { timeout: { maximum: number } } } };
  };
};

export async function readFacts({ request }: Verbs): Promise<Facts> {
  // Clients list the tools when they start: a service that hangs must not hold them up.
  const soon = { retries: 0, timeoutMs: 5000 };
  const read = async (path: string): Promise<unknown> => (await request(path, {}, soon)).json();
  const [jobTypes, document] = await Promise.all([read("/job-types"), read("/openapi.json")]);
  const { ExecuteRequest } = (document as Document).components.schemas;
  return {
    jobTypes: jobTypes as JobType[],
    maxTimeoutS: ExecuteRequest.properties.timeout.maximum,
  };
}

/** One line for each job type: its Python, packages and limits. */
function describeJobTypes({ jobTypes, maxTimeoutS }: Facts): string {
  const lines = jobTypes.map((type) => {
    const packages = type.requirements.join(", ") || "those of its image, else none";
    const missing = type.image_exists ? "" : " No connected host has its image at the moment.";
    return `- ${type.name}: Python ${type.python_version}; packages: ${packages}; ${type.memory_limit} memory, ${type.cpu_limit} CPU, ${type.timeout} s.${missing}`;
  });
  const most = maxTimeoutS === undefined ? "" : ` \`timeout\` can be at most ${maxTimeoutS} s.`;
  return `Job types (\`job_type\`), each with its packages beside the standard library, and its limits:\n${lines.join("\n")}\nThe seconds are the time limit of the code unless \`timeout\` gives another.${most}`;
}
