import { programArgs } from "../../../../shared/testing/program.ts";

/** The command `airlock` for one service, in the words of bash, zsh and fish alike. */
export function shellFunction(url: string, shell: "sh" | "fish" = "sh"): string {
  const args = [process.execPath, ...programArgs("clients/cli/main.ts")].join(" ");
  const command = `env AIRLOCK_URL=${url} XDG_CONFIG_HOME=/nonexistent ${args}`;
  return shell === "fish"
    ? `function airlock; ${command} $argv; end`
    : `airlock() { ${command} "$@"; }`;
}
