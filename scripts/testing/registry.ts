import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { registryProgram } from "../setup/tools.ts";

/** An image registry that asks for a password: Debian's docker-registry over one folder. */
export type Registry = AsyncDisposable & {
  /** What images' names begin with: its loopback address, as engines trust no other without TLS. */
  readonly name: string;
  readonly username: string;
  readonly password: string;
  /** Runs it here, or on the loopback of another network, by a command that goes there. */
  readonly start: (enter?: readonly string[]) => Promise<void>;
};

const username = "builder";
const password = "a password: of its own";
/** The password by bcrypt. */
const hash = "$2y$05$abcdefghijklmnopqrstuuPU0WMhFjYLC.lZKfJKI.YEwQ/E8HJSa";

export async function makeRegistry(): Promise<Registry> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-registry-"));
  const address = `127.0.0.1:${await reservePort()}`;
  const users = join(folder, "htpasswd");
  const settings = join(folder, "config.json");
  writeFileSync(users, `${username}:${hash}\n`);
  writeFileSync(
    settings,
    // JSON is YAML.
    JSON.stringify({
      version: "0.1",
      storage: { filesystem: { rootdirectory: join(folder, "images") } },
      http: { addr: address, secret: "that both share" },
      auth: { htpasswd: { realm: "test", path: users } },
    }),
  );
  const processes: ChildProcess[] = [];

  async function start(enter: readonly string[] = []): Promise<void> {
    const [goThere, ...how] = enter;
    if (goThere !== undefined) execFileSync(goThere, [...how, "ip", "link", "set", "lo", "up"]);
    const [program, ...args] = [...enter, registryProgram(), "serve", settings];
    const registry = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    processes.push(registry);
    const said: string[] = [];
    for await (const line of createInterface({ input: registry.stderr })) {
      said.push(line);
      if (line.includes("listening on")) return void registry.stderr.resume();
    }
    throw new Error(`the registry did not start:\n${said.join("\n")}`);
  }

  return {
    name: `${address}/team`,
    username,
    password,
    start,
    [Symbol.asyncDispose]: async () => {
      for (const registry of processes) {
        const ended = once(registry, "exit");
        if (registry.kill("SIGKILL")) await ended;
      }
      rmSync(folder, { recursive: true });
    },
  };
}
