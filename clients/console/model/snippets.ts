/** A request that makes a job. */
export interface Call {
  path: string;
  body: Record<string, unknown>;
}
export type Language = "curl" | "python" | "typescript";

interface Submission {
  code: string;
  input: Record<string, unknown>;
  jobType: string;
  args: string[];
  stdin: string;
  timeout: number | undefined;
  files: { name: string; file_id: string }[];
}

/** What the playground submits, to be answered with the result. */
export function executeCall(submission: Submission): Call {
  const { code, input, jobType, args, stdin, timeout, files } = submission;
  return {
    path: "/execute",
    body: {
      code,
      ...(Object.keys(input).length > 0 && { input_data: input }),
      ...(args.length > 0 && { args }),
      ...(stdin !== "" && { stdin }),
      ...(files.length > 0 && { files: files.map(({ name, file_id }) => ({ name, file_id })) }),
      ...(jobType !== "default" && { job_type: jobType }),
      ...(timeout !== undefined && { timeout }),
    },
  };
}

/** The call as a program: what to paste where it should run. */
export function snippet(language: Language, url: string, call: Call, hasKey: boolean): string {
  if (language === "curl") return curl(url, call, hasKey);
  if (language === "python") return python(url, call, hasKey);
  return typescript(url, call, hasKey);
}

/** Only `/execute` waits for the end; the others answer with the job's id. */
const shownField = ({ path }: Call): "stdout" | "job_id" =>
  path === "/execute" ? "stdout" : "job_id";

function curl(url: string, { path, body }: Call, hasKey: boolean): string {
  const key = hasKey ? ` \\\n  -H "Authorization: Bearer $AIRLOCK_KEY"` : "";
  const json = JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -sS ${url}${path}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'\n`;
}

function python(url: string, call: Call, hasKey: boolean): string {
  const headers = hasKey
    ? `{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["AIRLOCK_KEY"]}`
    : `{"Content-Type": "application/json"}`;
  const field = shownField(call);
  return `import json
${hasKey ? "import os\n" : ""}import urllib.request

job = ${pythonValue(call.body, "")}
request = urllib.request.Request(
    "${url}${call.path}",
    data=json.dumps(job).encode(),
    headers=${headers},
)
with urllib.request.urlopen(request) as answer:
    result = json.load(answer)
print(result["${field}"]${field === "stdout" ? `, end=""` : ""})
`;
}

function typescript(url: string, call: Call, hasKey: boolean): string {
  const key = hasKey ? "\n    Authorization: `Bearer ${process.env.AIRLOCK_KEY}`," : "";
  return `const answer = await fetch("${url}${call.path}", {
  method: "POST",
  headers: {
    "Content-Type": "application/json",${key}
  },
  body: JSON.stringify(${JSON.stringify(call.body, null, 2).replaceAll("\n", "\n  ")}),
});
const result = await answer.json();
console.log(result.${shownField(call)});
`;
}

/** JSON as a Python literal. A string of JSON is one of Python too. */
function pythonValue(value: unknown, indent: string): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const items = Array.isArray(value)
    ? value.map((item) => deeper + pythonValue(item, deeper))
    : Object.entries(value).map(
        ([key, item]) => `${deeper}${JSON.stringify(key)}: ${pythonValue(item, deeper)}`,
      );
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (items.length === 0) return open + close;
  return `${open}\n${items.join(",\n")},\n${indent}${close}`;
}
