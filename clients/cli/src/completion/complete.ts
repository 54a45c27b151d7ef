import type { Argument, Command, Option } from "commander";
import type { GlobalOptions } from "../tool.ts";

/** A word that the shell may offer, and its description. */
export type Candidate = readonly [word: string, about?: string];

/** What the last word can be. */
export interface Place {
  readonly candidates: readonly Candidate[];
  /** The argument or option whose value it is, as commander names it. */
  readonly named?: string | undefined;
  /** The options of the program that were given before. */
  readonly globals: GlobalOptions;
}

/** Finds out what the last of these words can be. */
export function placeOf(program: Command, words: readonly string[]): Place {
  const before = words.slice(0, -1);
  const current = words.at(-1) ?? "";
  const globals: Record<string, unknown> = {};
  let command = program;
  let given = 0;
  for (let word = before.shift(); word !== undefined; word = before.shift()) {
    const option = optionOf(command, word);
    const sub = given === 0 ? subcommandOf(command, word) : undefined;
    if (option?.required) {
      const value = before.shift();
      if (value === undefined) return { ...valuesOf(option, option.attributeName()), globals };
      globals[option.attributeName()] = value;
    } else if (sub) command = sub;
    else if (!word.startsWith("-") || word === "-") given++;
  }
  const { commands, options, registeredArguments } = command;
  const argument = registeredArguments[Math.min(given, registeredArguments.length - 1)];
  // What follows the file of `run` goes to the code.
  if (argument?.name() === "args") return { candidates: [], globals };
  if (current.startsWith("-")) return { candidates: [...options.map(describe), help], globals };
  if (commands.length === 0 || given > 0) {
    return { candidates: [], ...(argument && valuesOf(argument, argument.name())), globals };
  }
  const shown = command.createHelp().visibleCommands(command);
  return { candidates: shown.map((one) => [one.name(), one.description()]), globals };
}

const help: Candidate = ["--help", "display help for command"];

function optionOf({ options }: Command, word: string): Option | undefined {
  return options.find(({ short, long }) => word === short || word === long);
}

function subcommandOf({ commands }: Command, word: string): Command | undefined {
  return commands.find((one) => one.name() === word || one.aliases().includes(word));
}

function describe({ long, short, description }: Option): Candidate {
  return [long ?? short ?? "", description];
}

function valuesOf({ argChoices }: Option | Argument, named: string) {
  return { candidates: (argChoices ?? []).map((word): Candidate => [word]), named };
}
