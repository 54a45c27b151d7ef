import {
  configure,
  getJsonLinesFormatter,
  getLogger,
  type Logger,
  type LogRecord,
} from "@logtape/logtape";
import type { Config } from "../../shared/config.ts";
import { formatLogLine, withPlainMessage } from "../../shared/log-line.ts";

const jsonLines = getJsonLinesFormatter({ properties: "flatten" });
const formatJson = (record: LogRecord): string => jsonLines(withPlainMessage(record));

/** Writes the lines of one turn of the event loop at once: each write is a system call that blocks. */
function stderrByTurn(): (line: string) => void {
  let lines: string[] = [];
  const flush = (): void => {
    const text = lines.join("");
    lines = [];
    if (text !== "") process.stderr.write(text);
  };
  process.on("exit", flush);
  return (line) => {
    if (lines.push(line) === 1) setImmediate(flush);
  };
}

/** Log lines on standard error: in the contract's shape, or one JSON object each. */
export async function startLog({ log_level, log_format }: Config): Promise<Logger> {
  const format = log_format === "json" ? formatJson : formatLogLine;
  const write = stderrByTurn();
  await configure({
    sinks: { stderr: (record) => write(format(record)) },
    loggers: [
      { category: "airlock", lowestLevel: log_level, sinks: ["stderr"] },
      { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["stderr"] },
    ],
  });
  return getLogger(["airlock", "api"]);
}
