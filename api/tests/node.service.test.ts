import { contractTable, testContract } from "../testing/contract-table.ts";
import { startNode } from "../testing/start-node.ts";

testContract(
  startNode,
  contractTable.filter(({ only }) => only?.on !== "workerd"),
);
