import type { ExecutionRecord } from "../../typescript/src/generated.ts";
import type { Call } from "./snippets.ts";

interface Submitted {
  code: string;
  input: Record<string, unknown>;
}

/** The request that made an execution, from its record with `view=all`. Files are named, without their bytes. */
export function callThatMade(record: ExecutionRecord, { code, input }: Submitted): Call {
  const { parent_execution_id: parent, relationship, requirements = [], session_id } = record;
  // Without events, nobody would know whose calls to answer.
  const execute = record.mode === "sync" && !record.tools ? "/execute" : "/execute/async";
  const ofAll = {
    timeout: record.timeout,
    idempotency_key: record.idempotency_key ?? undefined,
    stdin: record.stdin,
    metadata: record.metadata,
    queue_timeout: record.queue_timeout,
    callback_url: record.callback_url,
    tools: record.tools,
    tool_timeout: record.tool_timeout,
  };
  const input_data = Object.keys(input).length > 0 ? input : undefined;
  if (session_id) {
    const { command, context } = record;
    const run = command ? { command } : { code };
    return {
      path: `/sessions/${session_id}${execute}`,
      body: named({ ...run, context, input_data, ...ofAll }),
    };
  }
  const given = {
    job_type: record.job_type,
    args: record.args,
    run_at: record.run_at,
    max_attempts: record.max_attempts,
    ...ofAll,
  };
  if (parent && relationship) {
    const path = `/jobs/${parent}/${relationship}`;
    return { path, body: named({ ...(relationship === "fork" && { code }), ...given }) };
  }
  const files = filesOf(record).map(placeholder);
  return {
    path: execute,
    body: named({
      code,
      input_data,
      files: files.length > 0 ? files : undefined,
      language: record.language,
      command: record.command,
      compile_command: record.compile_command,
      compile_timeout: record.compile_timeout,
      results: record.results && true,
      startup_timeout: record.startup_timeout,
      requirements: requirements.length > 0 ? requirements : undefined,
      ...given,
    }),
  };
}

export const placeholder = ({ name }: { name: string }) => ({
  name,
  file_id: `<file_id of ${name}>`,
});

/** The files that it was given, without its own code and input. */
export const filesOf = ({ input_artifacts = [] }: ExecutionRecord) =>
  input_artifacts.filter(({ name }) => !name.startsWith("_"));

/** The fields that have a value. */
export function named(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
