/**
 * The script of each shell. It calls `airlock complete` with the words up to the cursor, which prints a candidate per
 * line: the word, a tab, and its description. Without candidates, the shell completes files.
 */
export const completionScripts: Readonly<Record<string, string>> = {
  bash: `_airlock() {
  local line word words
  # Not COMP_WORDS: bash splits addresses at their colons.
  read -ra words <<<"\${COMP_LINE:0:COMP_POINT}"
  [[ \${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
  COMPREPLY=()
  while IFS= read -r line; do
    # bash takes it into the line as it is, and a name may be "$(reboot)".
    printf -v word %q "\${line%%$'\\t'*}"
    COMPREPLY+=("$word")
  done < <(airlock complete -- "\${words[@]:1}" 2>/dev/null)
}
complete -o default -F _airlock airlock
`,
  zsh: `# A new user's zsh may not have set up its completion.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_airlock() {
  local -a lines
  lines=("\${(@f)$(airlock complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z $lines[1] ]]; then _files; return; fi
  lines=("\${(@)lines//$'\\t'/  }")
  compadd -V airlock -ld lines -- "\${(@)lines%%  *}"
}
compdef _airlock airlock
`,
  fish: `function __airlock_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found (airlock complete -- $words[2..-1] "$word" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -k -c airlock -f -a '(__airlock_complete)'
`,
};
