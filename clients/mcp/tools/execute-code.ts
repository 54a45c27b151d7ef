import { z } from "zod";
import { limits } from "../../../shared/wire/limits.ts";
import { ExecuteRequest } from "../../../shared/wire/client/submission.ts";
import { tool } from "./call.ts";
import { describeJobTypes, type Facts } from "./facts.ts";
import { submitAndFollow, WaitSeconds } from "./follow.ts";
import { givenFile } from "./given-file.ts";
import { JobOutcome } from "./result.ts";

const { code, language, input_data, timeout, requirements, stdin, args } = ExecuteRequest.shape;

const File = givenFile(
  "Path under /input, such as tables/prices.csv. It must not be data.json or begin with _.",
);

const input = z.strictObject({
  code: code.describe("Source."),
  language: language.describe(
    "Language of the code, such as bash or cpp, if the image has its program; default: python.",
  ),
  input_data: input_data
    .optional()
    .meta({ type: "object", description: "JSON for the code, at /input/data.json." }),
  files: z
    .array(File)
    .max(limits.inputFilesMax)
    .optional()
    .describe(
      `Files for the code, at /input/<name>, read-only; at most ${limits.inputFilesMax}. Each has a name and exactly one of text, base64, file_id and artifact. Text, base64 and stdin count toward the size of the request: at most 10 MiB, unless the operator sets another limit.`,
    ),
  stdin: stdin.describe(
    "What the code reads from standard input, such as with input(). Without it, standard input is empty.",
  ),
  args: args.describe(
    `Arguments of the code: sys.argv[1:]; at most ${limits.argsMaxBytes / 1024} KiB together.`,
  ),
  job_type: z.string().optional().describe("Name of a job type; default: `default`."),
  timeout: timeout.describe("Time limit of the code in seconds."),
  requirements: requirements
    .optional()
    .describe("Packages to install first (PEP 508); only if the operator allows it."),
  wait_seconds: WaitSeconds,
});

export const executeCode = tool({
  name: "execute_code",
  title: "Run code",
  describe,
  input,
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

function describe(facts: Facts): string {
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
