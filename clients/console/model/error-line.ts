/** The last line of the submitted code that a traceback names, from 1. */
export function errorLine(stderr: string): number | undefined {
  const found = [...stderr.slice(-65_536).matchAll(/File "\/code\/main\.py", line (\d+)/g)];
  const last = found.at(-1)?.[1];
  return last === undefined ? undefined : Number(last);
}
