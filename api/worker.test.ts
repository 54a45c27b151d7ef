import { contractTable, testContract } from "./testing/contract-table.ts";
import { startWorker } from "./testing/start-worker.ts";

testContract(
  startWorker,
  contractTable.filter(({ notOnWorkerd }) => notOnWorkerd === undefined),
);
