import type { Command } from "commander";

/** A command with its subcommands and options, as the shell completes them. */
interface Node {
  readonly path: string;
  readonly words: string[];
}

/** Every command of a program, under the words that lead to it. */
function nodes(command: Command, path = ""): Node[] {
  const own = command.options.flatMap(({ long, short }) => [long, short].filter((one) => !!one));
  const names = command.commands.map((one) => one.name());
  const below = command.commands.flatMap((one) => nodes(one, `${path} ${one.name()}`.trim()));
  return [{ path, words: [...names, ...(own as string[]), "--help"] }, ...below];
}

/** The script that completes the words of `airlock` in bash or zsh. */
export function completionScript(program: Command, shell: "bash" | "zsh"): string {
  const globals = program.options.map(({ long }) => long ?? "");
  const cases = nodes(program)
    .map(
      ({ path, words }) =>
        `    "${path}") words="${[...words, ...(path ? globals : [])].join(" ")}" ;;`,
    )
    .join("\n");
  const groups = program.commands.filter((one) => one.commands.length > 0).map((one) => one.name());
  const path = `  local first="" second=""
  local i word
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    [[ $word == -* ]] && continue
    if [[ -z $first ]]; then first=$word; elif [[ -z $second ]]; then second=$word; fi
  done
  case " ${groups.join(" ")} " in
    *" $first "*) [[ -n $first && -n $second ]] && first="$first $second" ;;
  esac`;
  const bash = `_airlock() {
  local current=\${COMP_WORDS[COMP_CWORD]} words=""
${path}
  case "$first" in
${cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ \${#COMPREPLY[@]} -eq 0 && $current != -* ]]; then COMPREPLY=($(compgen -f -- "$current")); fi
}
complete -F _airlock airlock
`;
  if (shell === "bash") return bash;
  return `# A new user's zsh may not have set up its completion, which bash's builds on.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
autoload -Uz bashcompinit && bashcompinit
${bash}`;
}
