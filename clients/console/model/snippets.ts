/** A submission as the playground has it. */
export interface Submission {
  code: string;
  input: Record<string, unknown>;
  jobType: string;
}
export type Language = "curl" | "python" | "typescript";

/** The same submission as a program: what to paste where it should run. */
export function snippet(
  language: Language,
  url: string,
  { code, input, jobType }: Submission,
  hasKey: boolean,
): string {
  const body: Record<string, unknown> = { code };
  if (Object.keys(input).length > 0) body["input_data"] = input;
  if (jobType !== "default") body["job_type"] = jobType;
  if (language === "curl") return curl(url, body, hasKey);
  if (language === "python") return python(url, body, hasKey);
  return typescript(url, body, hasKey);
}

function curl(url: string, body: object, hasKey: boolean): string {
  const key = hasKey ? ` \\\n  -H "Authorization: Bearer $AIRLOCK_KEY"` : "";
  const json = JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -sS ${url}/execute${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'\n`;
}

function python(url: string, body: object, hasKey: boolean): string {
  const headers = hasKey
    ? `{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["AIRLOCK_KEY"]}`
    : `{"Content-Type": "application/json"}`;
  return `import json
${hasKey ? "import os\n" : ""}import urllib.request

job = ${pythonValue(body, "")}
request = urllib.request.Request(
    "${url}/execute",
    data=json.dumps(job).encode(),
    headers=${headers},
)
with urllib.request.urlopen(request) as answer:
    result = json.load(answer)
print(result["stdout"], end="")
`;
}

function typescript(url: string, body: object, hasKey: boolean): string {
  const key = hasKey ? "\n    Authorization: `Bearer ${process.env.AIRLOCK_KEY}`," : "";
  return `const answer = await fetch("${url}/execute", {
  method: "POST",
  headers: {
    "Content-Type": "application/json",${key}
  },
  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),
});
const result = await answer.json();
console.log(result.stdout);
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
