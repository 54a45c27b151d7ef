import { Argument, type Command } from "commander";
import { connect } from "../../../typescript/src/index.ts";
import { type Candidate, placeOf, type Place } from "../completion/complete.ts";
import { completionScripts } from "../completion/scripts.ts";
import { lookups } from "../completion/values.ts";
import { UsageError } from "../exit.ts";
import { readSettings } from "../settings.ts";
import { plain } from "../terminal.ts";
import { addCommand, does, type Tool } from "../tool.ts";

/** A person waits for this at every press of Tab. */
const timeoutMs = 1500;

/** Commands that shells use to complete words. */
export function addCompletion(program: Command): void {
  const shells = Object.keys(completionScripts);
  const shell = new Argument("<shell>", 'such as bash: eval "$(airlock completion bash)"');
  shell.argChoices = shells;
  addCommand(program, "completion", "print the completion script of a shell")
    .addArgument(shell)
    .action(
      does(async ({ terminal }: Tool, given: string) => {
        const script = completionScripts[given];
        if (script === undefined)
          throw new UsageError(`"${given}" must be one of ${shells.join(", ")}`);
        await terminal.write(script);
      }),
    );

  program
    .command("complete", { hidden: true })
    .argument("[words...]")
    .action(async (words: string[]) => {
      const place = placeOf(program, words);
      const typed = words.at(-1) ?? "";
      for (const [word, about = ""] of [...place.candidates, ...(await valuesAt(place))]) {
        if (word.startsWith(typed)) process.stdout.write(`${word}\t${plain(about)}\n`);
      }
    });
}

/** Returns nothing if the service does not answer soon: a shell cannot show errors. */
async function valuesAt({ named = "", globals }: Place): Promise<Candidate[]> {
  const lookup = lookups[named];
  if (!lookup) return [];
  try {
    const settings = { ...readSettings(globals, process.env), timeoutMs, retries: 0 };
    const found = await lookup(connect(settings));
    // Agents name themselves. No name is an option, and a list in a terminal stays one.
    return found.filter(([word]) => !word.startsWith("-") && word === plain(word));
  } catch {
    return [];
  }
}
