import { readFileSync } from "node:fs";

/** What is mounted below a folder, the innermost first. */
export function mountsIn(folder: string): string[] {
  return readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((mount) => mount.startsWith(`${folder}/`))
    .toReversed();
}
