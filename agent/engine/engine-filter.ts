import { existsSync, writeFileSync } from "node:fs";
import type { EngineError } from "../sandbox/errors.ts";

/**
 * How the filter of system calls is passed to the engine, best first: as text, as a file, or not at
 * all.
 */
export type FilterForm = "text" | "file" | "none";

interface Filtered {
  readonly HostConfig: { readonly SecurityOpt: readonly string[] };
}

const prefix = "seccomp={";

/**
 * Podman takes the seccomp profile in a create call as a file name, and refuses it. Source:
 * github.com/containers/podman issue 27710.
 */
export function refusesProfile({ message }: EngineError): boolean {
  return /seccomp profile.*(file name too long|no such file|permission denied)/is.test(message);
}

/**
 * The form to try after the engine has refused one. `file` is a path that the engine can read. If
 * the file has been removed since, for example by a cleaner of temporary files, it is written
 * again; the filter stays on.
 */
export function nextForm(form: FilterForm, profile: Filtered, file: string | null): FilterForm {
  const text = profile.HostConfig.SecurityOpt.find((option) => option.startsWith(prefix));
  if (text === undefined || file === null) return "none";
  if (form === "file" && existsSync(file)) return "none";
  writeFileSync(file, text.slice("seccomp=".length));
  return "file";
}

/** The profile with its filter in another form. */
export function withFilter<T extends Filtered>(
  profile: T,
  form: FilterForm,
  file: string | null,
): T {
  if (form === "text") return profile;
  const SecurityOpt = profile.HostConfig.SecurityOpt.flatMap((option) => {
    if (!option.startsWith(prefix)) return option;
    return form === "none" ? [] : `seccomp=${file}`;
  });
  return { ...profile, HostConfig: { ...profile.HostConfig, SecurityOpt } };
}
