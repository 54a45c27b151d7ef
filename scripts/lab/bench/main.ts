import { connectEngine } from "../../../agent/engine/engine.ts";
import { readConfig, runMain, say, table } from "../../operate/command.ts";
import { connect } from "../../setup/engine.ts";
import { setUp } from "../../setup/set-up.ts";
import {
  benchHelp,
  describeMachine,
  docsFile,
  loadNow,
  markdownTable,
  measureRow,
  mergeResults,
  parseBenchOptions,
  readResults,
  type RowResult,
  tableCells,
  writeDocs,
  writeResults,
} from "./results.ts";
import { rows } from "./rows.ts";
import { createWorld, removeBare } from "./world.ts";

const RESULTS_FILE = "bench.json";

await runMain(async () => {
  const names = rows.map(({ name }) => name);
  const options = parseBenchOptions(process.argv.slice(2), names);
  if (options.help) {
    process.stdout.write(benchHelp(rows));
    return;
  }
  const load = loadNow();
  if (load.isHigh) {
    const busy = load.perMinute.toFixed(2);
    say(`THE MACHINE IS BUSY (load average ${busy}): these numbers are worth little`);
  }
  const { dockerHost, image } = await setUp(readConfig(process.env));
  const engine = connectEngine(dockerHost);
  await removeBare(engine);
  const docker = connect(dockerHost);
  const world = createWorld({ engine, docker, dockerHost, image, quick: options.quick });

  const measured: RowResult[] = [];
  for (const row of rows) {
    if (options.only.length > 0 && !options.only.includes(row.name)) continue;
    say(`${row.name}: ${row.what}`);
    measured.push(await measureRow(row, world, load));
  }
  const machine = await describeMachine(docker);
  const results = mergeResults(readResults(RESULTS_FILE), { machine, rows: measured }, names);
  if (!options.quick) writeResults(RESULTS_FILE, results);
  if (options.writeDocs) writeDocs(results);
  const show = options.markdown ? markdownTable : table;
  process.stdout.write(`\n${show(tableCells(measured))}\n`);
  say(Object.values(machine).join("; "));
  if (options.writeDocs) say(`wrote ${docsFile}`);
  process.exit(0);
});
