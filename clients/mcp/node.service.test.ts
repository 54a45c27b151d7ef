import { describe } from "vitest";
import { startNode } from "../../api/testing/start-node.ts";
import { describeMcp } from "./testing/rows.ts";
import { settings } from "./testing/settings.ts";

describe("MCP on Node", () => {
  describeMcp(() => startNode(settings));
});
