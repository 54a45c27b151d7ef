import { connectEngine, type Engine } from "../../engine/engine.ts";

const reference = "python:3.13-slim";

/** The engine that tests run against, and its base image; npm test sets both up. */
export async function testEngine(): Promise<{ engine: Engine; image: string }> {
  const host = process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock";
  const remedy = "npm run setup installs and starts one; AIRLOCK_DOCKER_HOST names another.";
  const engine = connectEngine(host);
  const signal = AbortSignal.timeout(60_000);
  await engine.describe(signal).catch((cause: unknown) => {
    throw new Error(`no container engine answers at ${host}. ${remedy}`, { cause });
  });
  const image =
    (await engine.imageId(reference, signal)) ??
    (await engine.labelledImageId("io.airlock.stands-in-for", reference, signal));
  if (image === null) throw new Error(`the engine at ${host} has no ${reference}. ${remedy}`);
  return { engine, image };
}
