import { readArguments, runMain, say, wrongArguments } from "../operate/command.ts";
import { buildConsole } from "./build-console.ts";

const command = "npm run console";
const help = `Usage: ${command}

Builds the web console into dist/assets, where the API finds it, if its sources changed since the last
build. \`npm start\` and \`npm run setup\` do the same. A deployment needs this once after \`npm ci\`.
`;

await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  if (args.length > 0) throw wrongArguments("it takes no arguments", command);
  say((await buildConsole()) === "built" ? "built the console" : "the console is built already");
});
