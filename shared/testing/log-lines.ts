import { configure, type LogLevel } from "@logtape/logtape";

/** The messages that are logged from now on at this level or above, until `reset()`. */
export async function logLines(lowestLevel: LogLevel): Promise<string[]> {
  const lines: string[] = [];
  await configure({
    reset: true,
    sinks: { lines: ({ message }) => void lines.push(message.join("")) },
    loggers: [{ category: [], lowestLevel, sinks: ["lines"] }],
  });
  return lines;
}
