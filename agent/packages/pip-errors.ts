/** Lines of pip that tell why it failed, beside the many that it writes on its way. */
const telling = /^\s*(ERROR: |Could not fetch URL |WARNING: Retrying )/;

/** Why pip failed, in its own words: `log` is the end of what it wrote. */
export function explainPipFailure(log: string, exitCode: number): string {
  const lines = log.split(/\r?\n/).filter((line) => line.trim() !== "");
  const told = lines.filter((line) => telling.test(line));
  const retries = told.filter((line) => line.includes("WARNING: Retrying "));
  const words = told.filter((line) => !retries.includes(line) || line === retries.at(-1));
  // Of an exception in pip itself, and of what is not pip, the last line says most.
  if (words.length === 0 || words.some((line) => line.includes("ERROR: Exception:"))) {
    words.push(...lines.slice(-1));
  }
  return words.slice(-6).join("\n").slice(-2000) || `Pip ended with exit code ${exitCode}.`;
}
