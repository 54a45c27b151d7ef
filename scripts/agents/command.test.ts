import { expect, test } from "vitest";
import { parseAgentsCommand } from "./command.ts";

test.each([
  ["invite", { name: "invite", host: null, expiresInMs: 3_600_000 }],
  ["invite --name gpu-1 --expires 30m", { name: "invite", host: "gpu-1", expiresInMs: 1_800_000 }],
  ["invite --expires 2d", { name: "invite", host: null, expiresInMs: 172_800_000 }],
  ["list", { name: "list" }],
  ["revoke gpu-1", { name: "revoke", agent: "gpu-1" }],
  ["--help", { name: "help" }],
])("npm run agents -- %s", (line, command) => {
  expect(parseAgentsCommand(line.split(" "))).toEqual(command);
});

test.each([
  "",
  "invite gpu-1",
  "invite --expires 0m",
  "invite --expires 31d",
  "invite --expires soon",
  "invite --token x",
  "list --name x",
  "revoke",
  "revoke a b",
  "remove x",
])("refuses '%s', and says where to look", (line) => {
  const parse = () => parseAgentsCommand(line === "" ? [] : line.split(" "));
  expect(parse).toThrowError(/npm run agents -- --help shows how$/);
});
