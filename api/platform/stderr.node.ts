/** A writer to standard error, once in a turn of the event loop: each write is a system call that blocks. */
export function stderrByTurn(): (line: string) => void {
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
