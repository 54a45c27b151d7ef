import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { expect, it } from "vitest";
import { hostScope } from "../engine/host-scope.ts";
import { isAlive, showAlive } from "./alive.ts";

it("sees an agent as long as it lives", async () => {
  const id = randomUUID();
  expect(await isAlive(id, hostScope)).toBe(false);
  {
    using _life = await showAlive(id);
    expect(await isAlive(id, hostScope)).toBe(true);
    expect(await isAlive(randomUUID(), hostScope)).toBe(false);
  }
  expect(await isAlive(id, hostScope)).toBe(false);
});

it("does not see one that was killed", async () => {
  const id = randomUUID();
  const script = `
    import { showAlive } from ${JSON.stringify(import.meta.resolve("./alive.ts"))};
    await showAlive(${JSON.stringify(id)});
    console.log("alive");
    setInterval(() => {}, 1000);
  `;
  const args = ["--import", "tsx", "--input-type=module", "--eval", script];
  const agent = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(agent.stdout, "data");
  expect(await isAlive(id, hostScope)).toBe(true);
  agent.kill("SIGKILL");
  await once(agent, "exit");
  expect(await isAlive(id, hostScope)).toBe(false);
});

it("cannot tell whether an agent in another namespace lives", async () => {
  expect(await isAlive(randomUUID(), "another boot net:[1]")).toBeNull();
  expect(await isAlive(randomUUID(), "")).toBeNull();
});
