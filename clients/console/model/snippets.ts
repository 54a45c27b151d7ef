/** A request that makes a job. */
export interface Call {
  path: string;
  body: Record<string, unknown>;
}

interface Submission {
  code: string;
  input: Record<string, unknown>;
  jobType: string;
  language?: string | undefined;
  args: string[];
  stdin: string;
  timeout: number | undefined;
  files: { name: string; file_id: string }[];
}

/** What the playground submits, to be answered with the result. */
export function executeCall(submission: Submission): Call {
  const { code, input, jobType, language = "python", args, stdin, timeout, files } = submission;
  return {
    path: "/execute",
    body: {
      code,
      ...(Object.keys(input).length > 0 && { input_data: input }),
      ...(args.length > 0 && { args }),
      ...(stdin !== "" && { stdin }),
      ...(files.length > 0 && { files: files.map(({ name, file_id }) => ({ name, file_id })) }),
      ...(language !== "python" && { language }),
      ...(jobType !== "default" && { job_type: jobType }),
      ...(timeout !== undefined && { timeout }),
    },
  };
}

/** The call as a command of a shell. */
export function curl(url: string, { path, body }: Call, hasKey: boolean): string {
  const key = hasKey ? ` \\\n  -H "Authorization: Bearer $AIRLOCK_KEY"` : "";
  const json = JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -sS ${url}${path}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'\n`;
}
