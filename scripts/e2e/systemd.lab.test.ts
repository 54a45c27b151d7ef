import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { readUnit, startUnit } from "../testing/unit-file.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { needs } from "../testing/needs.ts";

const [agent, api] = [readUnit("airlock-agent.service"), readUnit("airlock-api.service")];

function analyze(...args: string[]): string {
  return execFileSync("systemd-analyze", args, { encoding: "utf8", stdio: "pipe" });
}

test("systemd finds no fault with the units", needs("systemd-analyze"), () => {
  expect(analyze("verify", "--man=no", agent.path, api.path)).toBe("");
});

test.each([agent, api])("$path keeps its service in", needs("systemd-analyze"), ({ path }) => {
  // In tenths; 100 is a service with nothing done. systemd-analyze fails above the threshold.
  const look = () => analyze("security", "--offline=true", "--no-pager", "--threshold=16", path);
  expect(look).not.toThrow();
});

test("a stop leaves time for the drain", () => {
  const drain = agent.values("Environment").find((pair) => /DRAIN_GRACE_S/.test(pair));
  const graceS = Number(drain?.split("=")[1]);
  expect(graceS).toBeGreaterThan(0);
  expect(Number(agent.values("TimeoutStopSec")[0])).toBeGreaterThanOrEqual(graceS + 30);
});

test(
  "the units' commands run a job and can write only to their own folders",
  needs("root"),
  async () => {
    const [token, port] = ["a-token-of-16-characters", String(await reservePort())];
    const url = `http://127.0.0.1:${port}`;
    const service = startUnit(api, { AIRLOCK_AGENT_TOKENS: token, AIRLOCK_PORT: port });
    await service.logged(url);
    const worker = startUnit(agent, {
      AIRLOCK_API_URL: url,
      AIRLOCK_AGENT_TOKEN: token,
      AIRLOCK_AGENT_NAME: `unit-${process.pid}`,
      AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock",
    });
    try {
      await worker.logged("answers");
      const headers = { "Content-Type": "application/json" };
      const code = "open('note.txt', 'w').write('kept')\nprint('hello')";
      const body = JSON.stringify({ code });
      const queued = await fetch(`${url}/execute/async`, { method: "POST", headers, body });
      const { job_id } = (await queued.json()) as { job_id: string };
      const done = await fetch(`${url}/jobs/${job_id}/result?wait=true&timeout=240`);
      expect(await done.json()).toMatchObject({ status: "succeeded", stdout: "hello\n" });
      expect(await (await fetch(`${url}/jobs/${job_id}/artifacts/note.txt`)).text()).toBe("kept");
    } finally {
      worker.child.kill("SIGTERM");
      expect(await worker.exited).toBe(0);
      service.child.kill("SIGTERM");
      expect(await service.exited).toBe(0);
    }
  },
);

test(
  "a wrong configuration ends an agent with a code that systemd does not start again",
  needs("root"),
  async () => {
    const { exited } = startUnit(agent, { AIRLOCK_AGENT_TOKEN: "" });
    const never = agent.values("RestartPreventExitStatus")[0]?.split(" ").map(Number);
    expect(never).toContain(await exited);
  },
);
