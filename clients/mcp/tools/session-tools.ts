import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import {
  CallRequest,
  Session,
  SessionRequest,
  SessionStatus,
} from "../../../shared/wire/client/session.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { tool } from "./call.ts";
import { describeJobTypes } from "./facts.ts";
import { submitAndFollow, WaitSeconds } from "./follow.ts";
import { givenFile } from "./given-file.ts";
import { JobOutcome } from "./result.ts";

const { session_id } = Session.shape;
const { code, timeout, stdin } = CallRequest.shape;
const { requirements, idle_timeout } = SessionRequest.shape;

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
    requirements: requirements
      .optional()
      .describe("Packages to install first (PEP 508); only if the operator allows it."),
    idle_timeout: idle_timeout.describe("Seconds without a call after which it ends by itself."),
    wait_seconds: z.int().min(0).max(50).default(30).describe("Seconds to wait until it is ready."),
  }),
  output: SessionState,
  isReadOnly: false,
  async run({ airlock }, { wait_seconds: wait, ...request }): Promise<CallToolResult> {
    const session = await airlock.sessions.create({ ...request, wait });
    const { status, message } = await session.info();
    const waits = message ?? "Calls of run_in_session wait for it.";
    const text = `Session ${session.id}: ${status}.${status === "ready" ? "" : ` ${waits}`}`;
    const structuredContent = { session_id: session.id, status, ...(message && { message }) };
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
    code: code.describe("Source."),
    restart: z.boolean().optional().describe("Start the interpreter anew before the code."),
    files: z
      .array(givenFile("Path under /output, such as tables/prices.csv."))
      .max(limits.inputFilesMax)
      .optional()
      .describe(
        "Files to write into the working directory before the code runs. Each has a name and exactly one of text, base64, file_id and artifact.",
      ),
    stdin: stdin.describe("What the code reads with input()."),
    timeout: timeout.describe("Time limit of the code in seconds."),
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
