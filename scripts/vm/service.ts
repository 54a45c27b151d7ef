import { Agent, request } from "undici";
import { IN_GUEST } from "./machine/project-disk.ts";
import { type Guest, quote } from "./machine/guest.ts";

/** An Airlock that runs in the guest as a unit of its systemd; requests reach it on loopback. */
export type Service = {
  readonly get: (path: string) => Promise<Reply>;
  readonly post: (path: string, body?: unknown) => Promise<Reply>;
  /** What it has logged so far. */
  readonly log: () => Promise<string>;
  /** Ends it as an operator does. Throws where it does not end well. */
  readonly stop: () => Promise<void>;
};

export type Reply = { status: number; text: string; json: Record<string, unknown> };

export type ServiceOptions = {
  /** A name of systemd's for it. */
  unit: string;
  /** What npm itself runs otherwise: emulated, npm needs a minute to get there. */
  npm?: boolean;
  user?: string;
  /** Groups of the user beside its own. */
  groups?: string[];
  env?: Record<string, string>;
  /** The clone that it starts. */
  folder?: string;
};

const PORT = 8080;
/** Containers that start side by side take each other's time: emulated, each takes the time of all. */
const LESS_AT_ONCE = { AIRLOCK_WARM_POOL_SIZE: "1" };
/** A synchronous wait of the API, and what emulation adds. */
const ANSWER_TIMEOUT_MS = 600_000;

/** Starts `npm start` in the guest and waits until it says that it is ready. */
export async function startService(guest: Guest, options: ServiceOptions): Promise<Service> {
  const {
    unit,
    npm = false,
    user = "root",
    groups = [],
    env = {},
    folder = IN_GUEST.project,
  } = options;
  const home = user === "root" ? "/root" : `/home/${user}`;
  const settings = Object.entries({ HOME: home, ...LESS_AT_ONCE, ...env }).map(
    ([name, value]) => `--setenv=${name}=${value}`,
  );
  const properties = [
    "KillMode=mixed",
    "TimeoutStopSec=180",
    `WorkingDirectory=${folder}`,
    ...groups.map((group) => `SupplementaryGroups=${group}`),
  ];
  const run = [
    "systemd-run",
    "--quiet",
    `--unit=${unit}`,
    `--uid=${user}`,
    ...settings,
    ...properties.map((property) => `--property=${property}`),
    ...(npm ? ["npm", "start"] : ["sh", "scripts/run", "scripts/start.ts"]),
  ];
  // systemd keeps a unit that failed, by its name.
  await guest.run(
    `systemctl reset-failed ${unit} 2>/dev/null || true\n${run.map(quote).join(" ")}`,
  );
  await untilLogged(guest, unit, "ready in");
  return { ...(await reach(guest)), ...controls(guest, unit) };
}

/** The API that listens on the guest's loopback. */
export async function reach(guest: Guest): Promise<Pick<Service, "get" | "post">> {
  const dispatcher = new Agent({
    connect: { socketPath: await guest.forward(PORT) },
    headersTimeout: ANSWER_TIMEOUT_MS,
    bodyTimeout: ANSWER_TIMEOUT_MS,
  });
  async function send(method: "GET" | "POST", path: string, body?: unknown): Promise<Reply> {
    const { statusCode, ...response } = await request(`http://127.0.0.1:${PORT}${path}`, {
      dispatcher,
      method,
      headers: { "content-type": "application/json" },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.body.text();
    const isJson = String(response.headers["content-type"]).includes("json");
    const json = (isJson ? JSON.parse(text) : {}) as Record<string, unknown>;
    return { status: statusCode, text, json };
  }
  return { get: (path) => send("GET", path), post: (path, body) => send("POST", path, body) };
}

/** The log of a unit, and a clean end of it. */
export function controls(guest: Guest, unit: string): Pick<Service, "log" | "stop"> {
  const log = (): Promise<string> => guest.run(`journalctl --no-pager -o cat -u ${unit}`);
  return {
    log,
    async stop() {
      await guest.run(`systemctl stop ${unit}`);
      const result = await guest.run(`systemctl show --value -p Result ${unit}`);
      if (result !== "success") {
        throw new Error(`${unit} ended with ${result}; its log:\n${lastLines(await log())}`);
      }
    },
  };
}

/** Waits until a unit has logged these words. Throws with the end of its log where it ends before. */
export async function untilLogged(guest: Guest, unit: string, words: string): Promise<void> {
  // Of this start of the unit alone. Seldom: emulated, each look takes a second of the processors.
  const script = `
log() { journalctl --no-pager -o cat "_SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID ${unit})"; }
while ! log | grep -q ${quote(words)}; do
  systemctl is-active -q ${unit} || systemctl is-active ${unit} | grep -q activating || break
  sleep 5
done
log | tail -n 30
log | grep -q ${quote(words)}`;
  await guest.run(`# ${unit} logs "${words}"${script}`);
}

function lastLines(text: string): string {
  return text.split("\n").slice(-30).join("\n");
}
