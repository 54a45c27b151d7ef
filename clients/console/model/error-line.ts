/**
 * The innermost line of the submitted code that the last traceback names, from 1. The outermost frame is in this code;
 * others may be in cells that ran before it.
 */
export function errorLine(stderr: string): number | undefined {
  const trace = stderr.slice(-65_536).split("Traceback (most recent call last):").at(-1)!;
  const frames = [...trace.matchAll(/File "(\/code\/main\.py|<cell \d+>)", line (\d+)/g)];
  const own = frames.findLast(([, file]) => file === frames[0]?.[1]);
  return own && Number(own[2]);
}
