/** Writes to standard error once per tick of the event loop: each write is a blocking system call. */
export function stderrByTick(): (line: string) => void {
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
