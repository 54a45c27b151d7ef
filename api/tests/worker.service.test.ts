import { describe } from "vitest";
import { contractTable, testContract } from "../testing/contract-table.ts";
import { startWorker, startWorkerd } from "../testing/start-worker.ts";

const rows = contractTable.filter(({ only }) => only?.on !== "node");
const isHidden = ({ hiddenByWrangler }: (typeof rows)[number]) => hiddenByWrangler !== undefined;

testContract(
  startWorker,
  rows.filter((row) => !isHidden(row)),
);

// An open socket to the Durable Object also keeps the other work of a request alive.
describe.each([true, false])("workerd without wrangler, wake-ups: %s", (hasWakes) => {
  testContract((vars) => startWorkerd(vars, hasWakes), rows.filter(isHidden));
});
