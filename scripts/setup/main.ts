import { readConfig } from "../config.ts";
import { runMain } from "../operator-error.ts";
import { say } from "../say.ts";
import { setUp } from "./set-up.ts";

await runMain(async () => {
  const { dockerHost, image } = await setUp(readConfig(process.env));
  say(`set up: the engine at ${dockerHost} answers and has the image ${image}`);
});
