/** The lines of pip's log that say why it failed. */
const telling = /^\s*(ERROR: |Could not fetch URL |WARNING: Retrying )/;

/** Why pip failed, from its own messages; `log` is the end of its output. */
export function explainPipFailure(log: string, exitCode: number): string {
  const lines = log.split(/\r?\n/).filter((line) => line.trim() !== "");
  const told = lines.filter((line) => telling.test(line));
  const retries = told.filter((line) => line.includes("WARNING: Retrying "));
  const words = told.filter((line) => !retries.includes(line) || line === retries.at(-1));
  // For an exception in pip itself, or another program, the last line is the most useful.
  if (words.length === 0 || words.some((line) => line.includes("ERROR: Exception:"))) {
    words.push(...lines.slice(-1));
  }
  return words.slice(-6).join("\n").slice(-2000) || `Pip ended with exit code ${exitCode}.`;
}
