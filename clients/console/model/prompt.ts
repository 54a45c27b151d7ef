import type { ExecutionRecord } from "../../typescript/src/generated.ts";
import { joinArguments } from "./arguments.ts";

type Failure = Pick<
  ExecutionRecord,
  "status" | "exit_code" | "error" | "language" | "command" | "compile" | "stdout" | "stderr"
> & { code: string; input: string };

const tailLength = 4000;

/** A failed execution as a question to a language model. */
export function failurePrompt(failure: Failure): string {
  const { status, exit_code, error, code, input, stdout, stderr, command, compile } = failure;
  const how = exit_code === null ? status : `${status}, exit code ${exit_code}`;
  const language = command ? "" : (failure.language ?? "python");
  const isPython = language === "python";
  const what = command
    ? `program, run as ${joinArguments(command)},`
    : `${isPython ? "Python" : language} program`;
  const said = compile ? compile.stdout + compile.stderr : "";
  const parts = [
    `This ${what} ended ${how}${error ? ` with ${error.type} in the phase ${error.phase}: ${error.message}` : ""}.`,
    "It ran in an isolated container without network. It reads its input from /input/data.json and writes files to /output. Find the cause and give the corrected program.",
    block(`The program${isPython ? ", /code/main.py" : ""}`, language, code),
    input.trim() === "{}" ? "" : block("The input, /input/data.json", "json", tail(input)),
    said === "" ? "" : block("What the compiler wrote", "", said),
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
