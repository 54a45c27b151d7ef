import { parseCommandLine } from "../command/arguments.ts";
import { OperatorError } from "../command/operator-error.ts";

export type BenchOptions = {
  readonly help: boolean;
  /** Names of rows; empty for all. */
  readonly only: readonly string[];
  /** Few samples: whether everything works, not how fast it is. */
  readonly quick: boolean;
  readonly markdown: boolean;
  readonly writeDocs: boolean;
};

export function benchHelp(rows: readonly { name: string; what: string }[]): string {
  const list = rows.map(({ name, what }) => `  ${name.padEnd(18)}${what}`).join("\n");
  return `Usage: npm run bench -- [options]

Measures Airlock beside the bare container engine and \`docker run\`, prints a table and keeps the
numbers in bench.json. Sets up what is missing (container engine, images).

Options:
      --only <row>   measure this row; may be repeated
      --quick        few samples: shows that it works, not how fast it is
      --markdown     print the table as Markdown
      --write-docs   also write the table of docs/performance.md from bench.json
  -h, --help

Rows:
${list}
`;
}

/** Reads the arguments of `npm run bench --`. Throws OperatorError on one that it does not know. */
export function parseBenchOptions(args: string[], rows: readonly string[]): BenchOptions {
  const { values } = parseCommandLine("npm run bench", {
    args,
    options: {
      help: { type: "boolean", short: "h" },
      only: { type: "string", multiple: true },
      quick: { type: "boolean" },
      markdown: { type: "boolean" },
      "write-docs": { type: "boolean" },
    },
  });
  const only = values.only ?? [];
  const unknown = only.find((name) => !rows.includes(name));
  if (unknown !== undefined) {
    throw new OperatorError(`--only ${unknown}: no such row; there are ${rows.join(", ")}`);
  }
  if (values.quick && values["write-docs"]) {
    throw new OperatorError("--quick measures too little for --write-docs");
  }
  return {
    help: values.help ?? false,
    only,
    quick: values.quick ?? false,
    markdown: values.markdown ?? false,
    writeDocs: values["write-docs"] ?? false,
  };
}
