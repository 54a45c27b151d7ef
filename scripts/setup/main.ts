import { readArguments, readConfig, runMain, say, wrongArguments } from "../operate/command.ts";
import { buildConsole } from "./build-console.ts";
import { setUp } from "./set-up.ts";

const command = "npm run setup";
const help = `Usage: ${command}

Finds a container engine, or installs and starts one where it may (root on Debian or Ubuntu), and gets the
base image, and builds the console. \`npm start\` does the same before it starts the service.
`;

await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  if (args.length > 0) throw wrongArguments("it takes no arguments", command);
  const [{ dockerHost, image }] = await Promise.all([
    setUp(readConfig(process.env)),
    buildConsole(),
  ]);
  say(`set up: the engine at ${dockerHost} answers and has the image ${image}`);
});
