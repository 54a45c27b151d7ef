import { expect, test } from "vitest";
import { engineHosts } from "./engine-hosts.ts";

test("a configured docker_host is the only candidate, before DOCKER_HOST", () => {
  expect(engineHosts("tcp://a:1", { DOCKER_HOST: "tcp://b:2" })).toEqual({
    hosts: ["tcp://a:1"],
    setBy: "docker_host",
  });
});

test("DOCKER_HOST is the only candidate if it is set", () => {
  expect(engineHosts(undefined, { DOCKER_HOST: "tcp://b:2" })).toEqual({
    hosts: ["tcp://b:2"],
    setBy: "DOCKER_HOST",
  });
});

test("else the sockets are tried, Docker's before Podman's", () => {
  const { hosts, setBy } = engineHosts(undefined, { XDG_RUNTIME_DIR: "/run/user/7", HOME: "/h" });
  expect(setBy).toBeUndefined();
  expect(hosts).toEqual([
    "unix:///var/run/docker.sock",
    "unix:///run/user/7/docker.sock",
    "unix:///h/.docker/run/docker.sock",
    "unix:///run/user/7/podman/podman.sock",
    "unix:///run/podman/podman.sock",
  ]);
});

test("an empty setting counts as none", () => {
  expect(engineHosts("", { DOCKER_HOST: "" }).hosts).toEqual([
    "unix:///var/run/docker.sock",
    "unix:///run/podman/podman.sock",
  ]);
});
