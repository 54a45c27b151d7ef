import { expect, test } from "vitest";
import { parseAgentsCommand, parseKeysCommand } from "./arguments.ts";

const dayMs = 86_400_000;
const made = { name: "create", key: "ci", tenant: "default", expiresInMs: null, format: "airlock" };

test.each([
  ["create --name ci --scopes run,read", { ...made, scopes: ["run", "read"] }],
  [
    "create --name ci --tenant search --scopes admin,admin --expires 90d",
    { ...made, tenant: "search", scopes: ["admin"], expiresInMs: 90 * dayMs },
  ],
  ["list", { name: "list" }],
  ["create --name ci --scopes run --format e2b", { ...made, scopes: ["run"], format: "e2b" }],
  ["rotate ci", { name: "rotate", key: "ci", oldValidMs: dayMs, format: "airlock" }],
  [
    "rotate ci --old-valid 0s --format e2b",
    { name: "rotate", key: "ci", oldValidMs: 0, format: "e2b" },
  ],
  ["revoke ci", { name: "revoke", key: "ci" }],
  ["limits search", { name: "limits", tenant: "search", changes: {} }],
  [
    "limits search --max-queued 5 --max-stored-bytes 1g --max-running none",
    {
      name: "limits",
      tenant: "search",
      changes: { max_queued: 5, max_stored_bytes: 1024 ** 3, max_running: null },
    },
  ],
  ["--help", { name: "help" }],
])("npm run keys -- %s", (line, command) => {
  expect(parseKeysCommand(line.split(" "))).toEqual(command);
});

test.each([
  "",
  "create --scopes run",
  "create --name ci",
  "create --name ci --scopes root",
  "create --name shell --scopes run",
  "create --name ci --scopes run --tenant A",
  "create --name ci --scopes run --expires 1s",
  "create --name ci --scopes run --expires soon",
  "create ci --scopes run",
  "create --name ci --scopes run --format hex",
  "list --name ci",
  "list ci",
  "rotate",
  "rotate ci --old-valid 31d",
  "revoke a b",
  "limits",
  "limits search --max-queued many",
  "limits search --max-requests 0",
  "remove x",
])("refuses '%s', and says where to look", (line) => {
  const parse = () => parseKeysCommand(line === "" ? [] : line.split(" "));
  expect(parse).toThrowError(/npm run keys -- --help shows how$/);
});

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
