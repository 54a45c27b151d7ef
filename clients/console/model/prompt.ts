export interface Failure {
  status: string;
  exitCode: number | null;
  error: { type: string; message: string; phase: string } | null;
  code: string;
  input: string;
  stdout: string;
  stderr: string;
}

const tailLength = 4000;

/** A failed execution as a question to a language model. */
export function failurePrompt(failure: Failure): string {
  const { status, exitCode, error, code, input, stdout, stderr } = failure;
  const how = exitCode === null ? status : `${status}, exit code ${exitCode}`;
  const parts = [
    `This Python program ended ${how}${error ? ` with ${error.type} in the phase ${error.phase}: ${error.message}` : ""}.`,
    "It ran in an isolated container without network. It reads its input from /input/data.json and writes files to /output. Find the cause and give the corrected program.",
    block("The program, /code/main.py", "python", code),
    input.trim() === "{}" ? "" : block("The input, /input/data.json", "json", tail(input)),
    stderr === "" ? "" : block("What it wrote to stderr", "", tail(stderr)),
    stdout === "" ? "" : block("What it wrote to stdout", "", tail(stdout)),
  ];
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

function block(title: string, language: string, text: string): string {
  return `${title}:\n\n\`\`\`${language}\n${text.replace(/\n$/, "")}\n\`\`\``;
}

function tail(text: string): string {
  return text.length <= tailLength ? text : `[…]\n${text.slice(-tailLength)}`;
}
