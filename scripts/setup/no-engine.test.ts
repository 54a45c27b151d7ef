import { expect, test } from "vitest";
import type { EngineSearch } from "./find-engine.ts";
import { type Machine, noEngineAdvice } from "./no-engine.ts";
import type { PingResult } from "./ping-engine.ts";

const DOCKER = "unix:///var/run/docker.sock";
const server: Machine = { platform: "linux", root: true, apt: true };

function search(state: PingResult["state"], setBy?: EngineSearch["setBy"]): EngineSearch {
  const pings = [{ host: DOCKER, state, reason: "why" }];
  return { hosts: [DOCKER], pings, ...(setBy ? { setBy } : {}) };
}

test("root with apt needs no advice: set-up installs or starts the engine", () => {
  expect(noEngineAdvice(search("absent"), server)).toBeUndefined();
  expect(noEngineAdvice(search("silent"), server)).toBeUndefined();
});

test.each<[string, EngineSearch, Machine, string]>([
  ["set but dead", search("silent", "DOCKER_HOST"), server, "unset DOCKER_HOST"],
  ["no permission", search("denied"), { ...server, root: false }, "usermod -aG docker"],
  ["not root", search("absent"), { ...server, root: false }, "sudo apt-get install docker.io"],
  [
    "installed, stopped",
    search("silent"),
    { ...server, root: false },
    "sudo systemctl start docker",
  ],
  ["no apt", search("absent"), { ...server, apt: false }, "package manager"],
  ["a Mac", search("absent"), { platform: "darwin", root: false, apt: false }, "Docker Desktop"],
])("says what to do: %s", (_name, found, machine, advice) => {
  expect(noEngineAdvice(found, machine)).toContain(advice);
});
