import { expect, test } from "vitest";
import { z } from "zod";
import { limits } from "./limits.ts";
import { Tool, tools } from "./tool.ts";

const request = z.object(tools);

test.each(["f", "_f", "get_price2", "match", "type_", "a".repeat(64)])("%s is a name", (name) => {
  expect(Tool.safeParse({ name }).success).toBe(true);
});

test.each([
  "",
  "1f",
  "a-b",
  "a.b",
  "None",
  "async",
  "len",
  "ToolError",
  "__f",
  "a".repeat(65),
  "f\n",
])("%j is no name", (name) => {
  expect(Tool.safeParse({ name }).success).toBe(false);
});

test("the definitions are bounded together", () => {
  const sized = (bytes: number) => [{ name: "f", description: "x".repeat(bytes) }];
  const rest = JSON.stringify(sized(0)).length;
  const most = limits.toolsMaxBytes - rest;
  expect(request.safeParse({ tools: sized(most) }).success).toBe(true);
  expect(request.safeParse({ tools: sized(most + 1) }).success).toBe(false);
});
