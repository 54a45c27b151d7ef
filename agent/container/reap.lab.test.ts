import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { isAlive } from "../health/alive.ts";
import { labels } from "../sandbox/labels.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { createReaper } from "./reap.ts";

const soon = (): AbortSignal => AbortSignal.timeout(60_000);
const program = fileURLToPath(import.meta.resolve("../sandbox/testing/doomed-agent.ts"));

it("an agent leaves the containers of one of its name in another network namespace", async () => {
  const { engine } = await testEngine();
  const [agentName, elsewhere] = [`reap-${randomUUID()}`, randomUUID()];
  const node = [process.execPath, "--import", "tsx", program, elsewhere, agentName];
  const agent = spawn("unshare", ["--net", ...node], { stdio: ["ignore", "pipe", "inherit"] });
  let nowMs = 0;
  const reap = createReaper(engine, {
    agentName,
    agentId: randomUUID(),
    isAlive,
    isHeld: () => false,
    nowMs: () => nowMs,
  });
  try {
    const [containerId] = (await once(agent.stdout, "data", { signal: soon() })) as [Buffer];
    expect(await reap(soon())).toBe(0);
    expect(await engine.inspect(String(containerId), soon())).toMatchObject({ isRunning: true });
    agent.kill("SIGKILL");
    await engine.wait(String(containerId), soon());
    expect(await reap(soon())).toBe(0);
    nowMs = 10 * 60_000;
    expect(await reap(soon())).toBe(1);
  } finally {
    agent.kill("SIGKILL");
    const left = await engine.list(labels.agentId, elsewhere, soon());
    await Promise.all(left.map(({ id }) => engine.remove(id, soon())));
  }
});
