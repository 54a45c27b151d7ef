import type { Duplex } from "node:stream";
import type { Engine } from "./engine.ts";
import { engineDemux } from "./frames.ts";
import { containerProfile } from "./profile.ts";
import { type Link, openSession } from "./session.ts";
import type { RunReport, Sandbox, SandboxSpec } from "./types.ts";

/** Milliseconds for a call to the engine that nobody else bounds. */
const callMs = 30_000;
/** Milliseconds in which a dead container's end shows at the engine. */
const autopsyMs = 5000;

/**
 * Starts a container and waits until its supervisor is ready for a job.
 *
 * @throws EngineError; the signal's reason on abort. No container is left behind in either case.
 */
export async function openSandbox(
  engine: Engine,
  spec: SandboxSpec,
  signal: AbortSignal,
): Promise<Sandbox> {
  signal.throwIfAborted();
  const beganAtMs = performance.now();
  // Not for the caller's signal to abort: the engine would go on to make a container nobody knows.
  const containerId = await engine.create(containerProfile(spec), AbortSignal.timeout(callMs));
  let removal: Promise<void> | undefined;
  const remove = (): Promise<void> =>
    (removal ??= engine.remove(containerId, AbortSignal.timeout(callMs)));

  try {
    const stream = await engine.attach(containerId, signal);
    const link = linkOf(stream);
    await engine.start(containerId, signal);
    const session = await openSession(link, signal);
    return {
      containerId,
      pythonVersion: session.pythonVersion,
      preloadErrors: session.preloadErrors,
      startupMs: performance.now() - beganAtMs,
      died: session.died,
      async run(job, options) {
        const report = await session.run(job, options);
        return report.ending === "lost" ? autopsy(engine, containerId, report) : report;
      },
      async close() {
        link.destroy();
        await remove();
      },
    };
  } catch (error) {
    // The first failure is the one to tell; what cannot be removed now is left to the reaper.
    await remove().catch(() => {});
    throw error;
  }
}

/** A supervisor over the stream of an attached container. */
function linkOf(stream: Duplex): Link {
  let diagnostics = "";
  stream.on("error", () => {});

  async function* output(): AsyncGenerator<Uint8Array> {
    const demux = engineDemux();
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const { stream: name, bytes } of demux(chunk)) {
        if (name === "stdout") yield bytes;
        else diagnostics = (diagnostics + bytes.toString("utf8")).slice(-4096);
      }
    }
  }
  return {
    input: stream,
    output: output(),
    diagnostics: () => diagnostics,
    destroy: () => stream.destroy(),
  };
}

/** Adds to a lost run what the engine knows of its container's end. */
async function autopsy(engine: Engine, id: string, report: RunReport): Promise<RunReport> {
  const signal = AbortSignal.timeout(autopsyMs);
  try {
    await engine.wait(id, signal);
    const { exitCode, outOfMemory } = await engine.inspect(id, signal);
    const lostReason = `${report.lostReason ?? ""} (the container's exit code is ${exitCode})`;
    return { ...report, outOfMemory, lostReason };
  } catch {
    return report;
  }
}
