import { randomInt } from "node:crypto";
import { readConfig } from "./command/config.ts";
import { OperatorError, runMain } from "./command/operator-error.ts";
import { setUp } from "./setup/set-up.ts";
import { requireTools } from "./setup/install-tools.ts";
import { parseSoakOptions, soakHelp, type SoakOptions } from "./soak/options.ts";
import { clearDeadPlaces, clearPlace, makePlace, programsOf } from "./soak/place.ts";
import { runSoak } from "./soak/run.ts";
import { mountsIn } from "./testing/mounts-in.ts";
import { networks } from "./testing/network.ts";

await runMain(async () => {
  const options = parseSoakOptions(process.argv.slice(2), () => randomInt(2 ** 32));
  if (options.help) {
    process.stdout.write(soakHelp);
    return;
  }
  if (process.getuid?.() !== 0) throw new OperatorError("a soak needs root: it runs a dockerd");
  const { dockerHost } = await setUp(readConfig(process.env));
  await requireTools(["network tools"], "a soak");
  await clearDeadPlaces();
  process.exit((await soakIn(makePlace(), dockerHost, options)) ? 0 : 1);
});

/** Whether the books balanced, and nothing was left on the machine. */
async function soakIn(place: string, dockerHost: string, options: SoakOptions): Promise<boolean> {
  const end = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => end.abort());
  let holds = false;
  try {
    holds = await runSoak(place, dockerHost, options, end.signal);
  } finally {
    const left = [...programsOf(place).map((pid) => `process ${pid}`), ...mountsIn(place)];
    if (networks().includes(`alk${process.pid}`)) left.push("the network");
    for (const what of left) process.stdout.write(`soak: left on the machine: ${what}\n`);
    holds &&= left.length === 0;
    // A soak that failed keeps its logs.
    if (holds) await clearPlace(place);
  }
  process.stdout.write(`soak: ${holds ? "everything holds" : `DOES NOT HOLD, logs in ${place}`}\n`);
  return holds;
}
