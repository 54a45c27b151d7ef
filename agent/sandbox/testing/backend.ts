import { randomUUID } from "node:crypto";
import { afterAll } from "vitest";
import { getLogger } from "@logtape/logtape";
import type { Engine } from "../../container/engine.ts";
import { openSandbox } from "../../container/open-sandbox.ts";
import { createForks, type Forks, whyNotForked } from "../../mother/forks.ts";
import { NotForkable } from "../../mother/mother.ts";
import type { Sandbox, SandboxSpec } from "../types.ts";

/** The backend that sandbox tests run against; vitest.config.ts sets it. */
export const backend = process.env["SANDBOX_BACKEND"] ?? "engine";

let forks: Forks | undefined;
afterAll(() => forks?.close());

/** Opens a sandbox with the backend of this run. */
export function openOn(
  place: { engine: Engine; image: string },
  spec: SandboxSpec,
  signal: AbortSignal,
  chosen = backend,
): Promise<Sandbox> {
  if (chosen === "engine" || whyNotForked(spec) !== null)
    return openSandbox(place.engine, spec, signal);
  return (forks ??= startForks(place)).open(spec, signal).catch((error: unknown) => {
    if (error instanceof NotForkable) return openSandbox(place.engine, spec, signal);
    throw error;
  });
}

function startForks({ engine, image }: { engine: Engine; image: string }): Forks {
  const mother = {
    volume: "airlock-sandbox-tests",
    agentId: randomUUID(),
    agentName: "sandbox-tests-mother",
    memoryBytes: null,
    pids: 4096,
  };
  const find = (): Promise<string> => Promise.resolve(image);
  return createForks({
    engine,
    mother,
    motherImage: find,
    ids: [0x7000_0000, 65_536],
    packages: { maxBytes: 1024 ** 3, keepsUnused: false },
    log: getLogger("test"),
  });
}
