import { describe } from "vitest";
import { startNode } from "../../api/testing/start-node.ts";
import { describeMcp, settings } from "./testing/rows.ts";

describe("MCP on Node", () => {
  describeMcp(() => startNode(settings));
});
