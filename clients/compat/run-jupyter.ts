import { z } from "zod";
import { Session } from "../../shared/wire/client/session.ts";
import { ExecutionRecord } from "../../shared/wire/execution.ts";
import { limits } from "../../shared/wire/limits.ts";
import { exceptionOf } from "./exception.ts";
import {
  ask,
  asThere,
  type Call,
  contentOf,
  isOwnError,
  parseBody,
  post,
  Refusal,
  sessionFile,
} from "./facade.ts";

const Seconds = z.number().positive().max(86_400);
const RunJupyter = z.object({
  cells: z.array(z.string()).max(limits.batchMax),
  /** 0: as long as all cells together. */
  cell_timeout: z.number().min(0).max(86_400).default(0),
  total_timeout: Seconds.default(45),
  kernel: z.literal("python3").default("python3"),
  files: z.record(z.string(), z.string().nullable()).default({}),
  fetch_files: z.array(z.string()).max(limits.artifactCountMax).default([]),
});
type RunJupyter = z.infer<typeof RunJupyter>;

/** Clients wait so long for a session, besides the time of their cells. */
const waitS = 5;

/**
 * SandboxFusion's POST /run_jupyter: a session for one request. A cell whose code fails stops no other. Source:
 * github.com/bytedance/SandboxFusion, sandbox/server/sandbox_api.py.
 */
export async function runJupyter(call: Call): Promise<Response> {
  const asked = await parseBody(RunJupyter, await call.text());
  const lifetime = Math.ceil(asked.total_timeout) + 60;
  const made = await post(call, "/sessions", { lifetime, idle_timeout: null, wait: waitS });
  const { session_id, status, message } = Session.parse(made);
  try {
    if (status !== "ready") throw new Refusal(503, message ?? "No agent has room for a session.");
    return Response.json(await runCells(call, session_id, asked));
  } finally {
    // Also for a client that has hung up.
    await call.api(`/sessions/${session_id}`, { method: "DELETE" });
  }
}

async function runCells(call: Call, session: string, asked: RunJupyter): Promise<object> {
  const endMs = performance.now() + asked.total_timeout * 1000;
  const run = async (fields: object) => {
    const ran = await post(call, `/sessions/${session}/execute`, fields);
    call.onRunning();
    return ran;
  };
  const files = Object.entries(asked.files).flatMap(([name, base64]) =>
    base64 === null ? [] : [{ name, base64, to: "work" }],
  );
  if (files.length > 0) await run({ files });
  const cells: object[] = [];
  for (const code of asked.cells) {
    const leftS = (endMs - performance.now()) / 1000;
    if (leftS <= 0) return answerOf("Failed", { driver: late(asked) });
    const timeout = Math.ceil(Math.min(leftS, asked.cell_timeout || leftS));
    const { job_id } = Ran.parse(await run({ code: code || "\n", timeout }));
    const record = ExecutionRecord.parse(await ask(call, `/executions/${job_id}`));
    if (record.status === "timeout" && performance.now() >= endMs) {
      return answerOf("Failed", { driver: late(asked) });
    }
    // What the service did to a cell is no verdict on it.
    if (isOwnError(record)) return answerOf("SandboxError", { message: record.error!.message });
    cells.push(cellOf(asThere(record)));
  }
  const fetched: Record<string, string> = {};
  for (const path of asked.fetch_files) {
    const bytes = await contentOf(call, sessionFile(session, path));
    if (bytes !== undefined) fetched[path] = bytes;
  }
  return answerOf("Success", { driver: finished, cells, files: fetched });
}

const Ran = z.object({ job_id: z.string() });

function cellOf(record: ExecutionRecord): object {
  const { stdout, stderr, results = [] } = record;
  const exception = exceptionOf(record, stderr);
  return {
    stdout,
    stderr,
    display: results.map(({ data }) => data),
    error: exception
      ? [{ ename: exception.name, evalue: exception.value, traceback: [exception.traceback] }]
      : [],
  };
}

const answerOf = (status: string, fields: object): object => {
  return {
    status,
    message: "",
    driver: null,
    cells: [],
    executor_pod_name: null,
    files: {},
    ...fields,
  };
};

const driver = { execution_time: null, return_code: null, stdout: "", stderr: "" };
const finished = { ...driver, status: "Finished", return_code: 0 };
const late = ({ total_timeout }: RunJupyter) => {
  return { ...driver, status: "TimeLimitExceeded", execution_time: total_timeout };
};
