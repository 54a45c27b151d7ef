import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { needs } from "../testing/needs.ts";

const [agent, api] = [readUnit("airlock-agent.service"), readUnit("airlock-api.service")];
const token = "a-token-of-16-characters";
const keepsAFile = "open('note.txt', 'w').write('kept')\nprint('hello')";

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
    const port = String(await reservePort());
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
      await expectFileKept(url);
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

/** Systemd itself runs the units in the machine of scripts/lab/vm only, which is thrown away. */
const here = process.env["TEST_VM_USER"] ? ["systemd"] : [];

test.each(here)(
  "%s runs the units: a killed agent comes back, and a stop lets the running job finish",
  async () => {
    const url = "http://127.0.0.1:8080";
    const units = ["airlock-api", "airlock-agent"];
    mkdirSync("/etc/airlock", { mode: 0o700, recursive: true });
    const configure = (name: string, ...lines: string[]) =>
      writeFileSync(`/etc/airlock/${name}.env`, `${lines.join("\n")}\n`, { mode: 0o600 });
    configure("api", `AIRLOCK_AGENT_TOKENS=${token}`);
    configure("agent", `AIRLOCK_API_URL=${url}`, `AIRLOCK_AGENT_TOKEN=${token}`);
    for (const unit of units) {
      copyFileSync(`packaging/systemd/${unit}.service`, `/etc/systemd/system/${unit}.service`);
    }
    systemctl("daemon-reload");
    systemctl("enable", "--quiet", ...units);
    systemctl("restart", ...units);
    await expectFileKept(url);

    systemctl("kill", "--signal=KILL", "--kill-whom=main", "airlock-agent");
    expect(await resultOf(url, await submit(url, "print('again')"))).toMatchObject({
      stdout: "again\n",
    });

    const code = `import time\nprint("begun", flush=True)\ntime.sleep(8)\nprint("finished")`;
    const id = await submit(url, code);
    // "running" comes earlier: an agent that stops hands back a job that is still on its way to it.
    await waitUntil("it has printed", async () =>
      (await (await fetch(`${url}/jobs/${id}/logs`)).text()).includes("begun"),
    );
    systemctl("stop", "airlock-agent");
    expect(await resultOf(url, id)).toMatchObject({ stdout: "begun\nfinished\n" });
    expect(execFileSync("docker", ["ps", "--all", "--quiet"], { encoding: "utf8" })).toBe("");
    systemctl("stop", "airlock-api");
    for (const unit of units)
      expect(systemctl("show", "--value", "-p", "Result", unit)).toBe("success\n");
  },
);

function systemctl(...args: string[]): string {
  return execFileSync("systemctl", args, { encoding: "utf8" });
}

async function expectFileKept(url: string): Promise<void> {
  const id = await submit(url, keepsAFile);
  expect(await resultOf(url, id)).toMatchObject({ status: "succeeded", stdout: "hello\n" });
  expect(await (await fetch(`${url}/jobs/${id}/artifacts/note.txt`)).text()).toBe("kept");
}

/** Until it is accepted: the service may have no agent yet. */
async function submit(url: string, code: string): Promise<string> {
  const headers = { "Content-Type": "application/json" };
  const request = { method: "POST", headers, body: JSON.stringify({ code, startup_timeout: 600 }) };
  let id: string | undefined;
  await waitUntil("the job is accepted", async () => {
    const answer = await fetch(`${url}/execute/async`, request).catch(() => undefined);
    if (answer?.status === 202) id = ((await answer.json()) as { job_id: string }).job_id;
    return id !== undefined;
  });
  return id!;
}

/** Asks again where a connection breaks: an emulated machine is slow to take the next request of a connection. */
async function resultOf(url: string, id: string): Promise<unknown> {
  let record: unknown;
  await waitUntil("the job has ended", async () => {
    const answer = await fetch(`${url}/jobs/${id}/result?wait=true&timeout=30`).catch(
      () => undefined,
    );
    record = answer?.status === 200 ? await answer.json() : undefined;
    return record !== undefined;
  });
  return record;
}

/** A unit of packaging/systemd: its settings by name, each with all of its values. */
type UnitFile = { readonly path: string; readonly values: (name: string) => string[] };

function readUnit(name: string): UnitFile {
  const path = resolve("packaging/systemd", name);
  const settings = readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => /^[A-Z]\w*=/.test(line))
    .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const);
  return {
    path,
    values: (wanted) => settings.flatMap(([key, value]) => (key === wanted ? [value] : [])),
  };
}

type UnitProcess = {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  /** Resolves once it has logged this. */
  readonly logged: (text: string) => Promise<void>;
};

/** An id that belongs to nobody, as DynamicUser gives one. */
const someUser = "61184";

/**
 * Starts a unit's command as it stands there, with its environment and that of `env` alone: as a user
 * of its own without a capability, this project at /opt/airlock, and no file system to write to but
 * /tmp and the unit's state.
 */
function startUnit(unit: UnitFile, env: Record<string, string>): UnitProcess {
  const [command = ""] = unit.values("ExecStart");
  const [folder = ""] = unit.values("WorkingDirectory");
  const [state = ""] = unit.values("StateDirectory");
  const groups = unit.values("SupplementaryGroups").map(groupId);
  const own = unit.values("Environment").map((pair) => pair.split("=", 2) as [string, string]);
  const script = `
    mount --bind "$0" /mnt
    mount -t tmpfs none /opt && mkdir ${folder} && mount --bind /mnt ${folder}
    mount -t tmpfs none /tmp && chmod 1777 /tmp
    mount -t tmpfs none /var/lib && mkdir -m 700 /var/lib/${state} && chown ${someUser} /var/lib/${state}
    mount -o remount,bind,ro ${folder} && mount -o remount,bind,ro /
    cd ${folder}
    exec setpriv --reuid ${someUser} --regid ${someUser} --groups ${[someUser, ...groups].join(",")} \\
      --no-new-privs --bounding-set=-all --inh-caps=-all ${command}`;
  const child = spawn("unshare", ["--mount", "sh", "-ec", script, resolve(".")], {
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
      ...Object.fromEntries(own),
      ...env,
    },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const exited = once(child, "close").then(([code]) => code as number | null);
  return {
    child,
    exited,
    logged: async (text) => {
      while (!log.includes(text)) {
        if (child.exitCode !== null) throw new Error(`ended without "${text}":\n${log}`);
        await Promise.race([once(child.stderr, "data"), exited]);
      }
    },
  };
}

function groupId(name: string): string {
  return execFileSync("getent", ["group", name]).toString().split(":")[2] ?? "";
}
