import { expect, test } from "vitest";
import type { EngineSearch } from "./find-engine.ts";
import { type Machine, noEngineAdvice } from "./no-engine.ts";
import type { PingResult } from "./ping-engine.ts";

const DOCKER = "unix:///var/run/docker.sock";
const server: Machine = { platform: "linux", root: true, apt: true, podman: false };
const user: Machine = { ...server, root: false };

function search(state: PingResult["state"], setBy?: EngineSearch["setBy"]): EngineSearch {
  const pings = [{ host: DOCKER, state, reason: "why" }];
  return { hosts: [DOCKER], pings, ...(setBy ? { setBy } : {}) };
}

test("Podman's folder, which belongs to root, does not count as an engine of the user", () => {
  const pings = [
    { host: DOCKER, state: "absent" as const, reason: "no such socket" },
    { host: "unix:///run/podman/podman.sock", state: "denied" as const, reason: "no permission" },
  ];
  const advice = noEngineAdvice({ hosts: [], pings }, { ...user, podman: true });
  expect(advice).toContain("systemctl --user enable --now podman.socket");
});

test("root with apt needs no advice: set-up installs or starts the engine", () => {
  expect(noEngineAdvice(search("absent"), server)).toBeUndefined();
  expect(noEngineAdvice(search("silent"), server)).toBeUndefined();
});

test.each<[string, EngineSearch, Machine, string]>([
  ["set but dead", search("silent", "DOCKER_HOST"), server, "unset DOCKER_HOST"],
  ["no permission", search("denied"), user, "usermod -aG docker"],
  ["not root", search("absent"), user, "sudo apt-get install docker.io"],
  [
    "Podman without its socket",
    search("absent"),
    { ...user, podman: true },
    "systemctl --user enable --now podman.socket",
  ],
  ["installed, stopped", search("silent"), user, "sudo systemctl start docker"],
  ["no apt", search("absent"), { ...server, apt: false }, "package manager"],
  ["a Mac", search("absent"), { ...user, platform: "darwin", apt: false }, "Docker Desktop"],
])("says in two lines what is wrong and what to do: %s", (_name, found, machine, advice) => {
  const [problem, remedy, ...rest] = noEngineAdvice(found, machine)!.split("\n");
  expect(problem).toContain(DOCKER);
  expect(remedy).toContain(advice);
  expect(rest).toEqual([]);
});
