import { expect, it } from "vitest";
import { engineHost } from "./engine-host.ts";

const env = { HOME: "/home/ada", XDG_RUNTIME_DIR: "/run/user/1" };

it.each([
  ["tcp://a:1", { DOCKER_HOST: "tcp://b:2" }, [], "tcp://a:1"],
  [undefined, { DOCKER_HOST: "tcp://b:2" }, ["/var/run/docker.sock"], "tcp://b:2"],
  [undefined, env, ["/var/run/docker.sock"], "unix:///var/run/docker.sock"],
  [undefined, env, ["/run/user/1/docker.sock"], "unix:///run/user/1/docker.sock"],
  [
    undefined,
    env,
    ["/home/ada/.docker/run/docker.sock"],
    "unix:///home/ada/.docker/run/docker.sock",
  ],
  [undefined, env, ["/run/podman/podman.sock"], "unix:///run/podman/podman.sock"],
  [undefined, {}, [], "unix:///var/run/docker.sock"],
])("%s, %o, with %o: %s", (configured, env, sockets: string[], host) => {
  expect(engineHost(configured, env, (path) => sockets.includes(path))).toBe(host);
});
