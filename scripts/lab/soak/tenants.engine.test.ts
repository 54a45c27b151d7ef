import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startWorker } from "../../../api/testing/start-worker.ts";
import { isLab } from "../../../shared/testing/test-file.ts";
import { needs } from "../../testing/needs.ts";
import {
  startTestService,
  startTestServiceOn,
  type TestService,
} from "../../testing/test-service.ts";
import { closeBooks, list, prepareTenants, startLoad } from "./load.ts";

/** With start and rest half a minute on a quiet machine. */
const loadMs = 20_000;
const places = 6;
/** The same seed makes clients do the same. */
const seed = Number(process.env["SOAK_SEED"] ?? randomInt(2 ** 31));

type Options = { readonly api: Readonly<Record<string, string>> };
const services: Readonly<Record<string, (options: Options) => Promise<TestService<never>>>> = {
  Node: startTestService as never,
  workerd: ((options: Options) => startTestServiceOn(startWorker, options)) as never,
};

/** What any try has shown of another tenant: a second try excuses what a slow machine does, and never that. */
const leaks: string[] = [];

// Nothing is skipped: each tier has its own rows.
test.concurrent.each(isLab ? [] : Object.keys(services))(
  "clients of three tenants that do everything at once get their own, and nothing is lost, on %s",
  { retry: 2, timeout: 600_000 },
  async (on) => {
    await using prepared = await prepareTenants();
    await using service = await services[on]!({ api: prepared.vars });
    await service.startAgent("agent", {
      AIRLOCK_MAX_SESSIONS: String(places),
      AIRLOCK_MAX_WORKERS: "8",
      AIRLOCK_CONTAINER_BACKEND: "zygote",
    });
    const urls = [service.url];
    const load = await startLoad({ urls, prepared, seed, isCalm: true, places });
    await sleep(loadMs);
    await load.stop();
    const { ended, faults } = await closeBooks(service.db, load.watch);
    const { requests, checks, violations, lost } = load.watch;
    const told = `on ${on}, seed ${seed}: ${requests} requests, ${checks} checks; ended: ${list(ended)}; busy: ${list(lost)}`;
    process.stdout.write(`${told}\n`);
    leaks.push(...load.watch.leaks);
    const found = [...leaks, ...violations, ...faults];
    // A second try that goes well would hide it.
    if (found.length > 0) process.stdout.write(`${found.slice(0, 20).join("\n\n")}\n`);
    expect(found.length, `${told}\n\n${found.slice(0, 20).join("\n\n")}`).toBe(0);
  },
);

test.each<[string, number]>(
  isLab
    ? [
        ["file", 10],
        ["servers", 3],
        ["workerd", 2],
      ]
    : [],
)(
  "the same while parts break, on the world %s, for %i minutes",
  { ...needs("root", "network tools"), retry: 0, timeout: 1_800_000 },
  async (world, minutes) => {
    const options = ["--world", world, "--minutes", String(minutes)];
    const soak = spawn("sh", ["scripts/run", "scripts/lab/soak/main.ts", ...options], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(soak, "exit") as Promise<[number | null]>;
    const [told, [code]] = await Promise.all([text(soak.stdout), ended]);
    expect(code, `it ended with ${code}:\n${told}`).toBe(0);
  },
);
