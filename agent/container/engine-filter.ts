import { existsSync, writeFileSync } from "node:fs";
import type { EngineError } from "../sandbox/types.ts";

/** How an engine takes the filter of system calls, best first: as it is, as a file, or not at all. */
export type FilterForm = "text" | "file" | "none";

interface Filtered {
  readonly HostConfig: { readonly SecurityOpt: readonly string[] };
}

const prefix = "seccomp={";

/**
 * Podman takes the seccomp profile of a create call for the name of a file, and refuses it.
 * Source: github.com/containers/podman issue 27710.
 */
export function refusesProfile({ message }: EngineError): boolean {
  return /seccomp profile.*(file name too long|no such file|permission denied)/is.test(message);
}

/**
 * The form to try after an engine has refused one; `file` for one that the engine may read. Whoever
 * removed that file, such as a cleaner of temporary files, does not turn the filter off.
 */
export function nextForm(form: FilterForm, profile: Filtered, file: string | null): FilterForm {
  const text = profile.HostConfig.SecurityOpt.find((option) => option.startsWith(prefix));
  if (text === undefined || file === null) return "none";
  if (form === "file" && existsSync(file)) return "none";
  writeFileSync(file, text.slice("seccomp=".length));
  return "file";
}

/** The container with its filter in another form. */
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
