import { readFileSync, writeFileSync } from "node:fs";
import { parseCommandLine } from "./command/arguments.ts";
import { readResults } from "./bench/results.ts";
import { markdownTable, plainTable } from "./bench/table.ts";
import { fillSections } from "./docs/sections.ts";
import { OperatorError, runMain } from "./command/operator-error.ts";
import { measureOperations } from "./scaling/operations.ts";
import { startNode } from "./scaling/live/node-engine.ts";
import { measureLive } from "./scaling/live/operations.ts";
import { liveTable } from "./scaling/live/table.ts";
import { startWorker } from "./scaling/live/worker-engine.ts";
import { assumptionTable, estimateTables, operationTable, type Table } from "./scaling/tables.ts";

const docsFile = "docs/scaling.md";
const command = "npm run scaling";
const help = `Usage: ${command} [-- --write-docs]

Counts what each operation takes of the database, and what events and webhooks take on each engine (about
5 minutes, because workerd's clock cannot be moved). Then simulates agents and their polls, and works out what
that comes to on each engine. --write-docs also writes the tables into ${docsFile}.
What one API process can take comes from bench.json: \`npm run bench -- --only api-jobs\` measures it.
`;

/** `npm run scaling`: the tables of docs/scaling.md. */
await runMain(async () => {
  const { values } = parseCommandLine(command, {
    options: { "write-docs": { type: "boolean" }, help: { type: "boolean", short: "h" } },
  });
  if (values.help) {
    process.stdout.write(help);
    return;
  }
  const jobs = readResults("bench.json")?.rows.find(({ name }) => name === "api-jobs")?.series[0];
  if (!jobs) {
    throw new OperatorError(
      "bench.json has no row api-jobs: npm run bench -- --only api-jobs measures it",
    );
  }
  const costs = await measureOperations();
  const tables: Record<string, Table> = {
    operations: operationTable(costs),
    live: liveTable({
      file: await measureLive((changes) => startNode("file", changes)),
      server: await measureLive((changes) => startNode("server", changes)),
      worker: await measureLive(startWorker),
    }),
    ...estimateTables(costs, jobs.p50),
    assumptions: assumptionTable(),
  };
  for (const [name, table] of Object.entries(tables)) {
    process.stdout.write(`${name}\n${plainTable(table)}\n`);
  }
  if (!values["write-docs"]) return;
  const sections = Object.fromEntries(
    Object.entries(tables).map(([name, table]) => [name, markdownTable(table)]),
  );
  writeFileSync(docsFile, fillSections(readFileSync(docsFile, "utf8"), sections));
});
