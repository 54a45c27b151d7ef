/** Prints one line about what the scripts are doing. */
export function say(line: string): void {
  process.stdout.write(`airlock: ${line}\n`);
}
