import { isCutShort } from "../sandbox/output/classify.ts";
import { bytecodes } from "./bytecode.ts";
import type { ContainerState, Engine } from "../engine/engine.ts";
import { containerProfile } from "./container-profile.ts";
import { InstallError } from "../sandbox/package-request.ts";
import { noMemory } from "../sandbox/conversation/install-packages.ts";
import { openConversation } from "../sandbox/conversation/conversation.ts";
import { encodeFrame } from "../sandbox/protocol/frames.ts";
import { linkOf } from "../engine/attach.ts";
import { supervisorProgram } from "../python/program.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { RunReport } from "../sandbox/report.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";

/** Timeout of an engine call that the caller cannot abort, in ms. */
const callMs = 30_000;
/** How long the engine may take to report how a container ended, in ms. */
const autopsyMs = 5000;
/**
 * How long a supervisor may take to end by itself, in ms: killing it would cost the engine one more
 * process.
 */
const partingMs = 5000;

const programs = bytecodes();

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
  // The caller's signal does not abort this call: the engine would still create the container, and
  // nobody would know its id.
  const profile = containerProfile(spec);
  const containerId = await bounded((limit) => engine.create(profile, limit));
  const remove = (): Promise<void> => bounded((limit) => engine.remove(containerId, limit));

  try {
    const stream = await engine.attach(containerId, signal);
    const link = linkOf(stream);
    const known = programs.of(spec.image);
    link.input.write(supervisorProgram(spec.preload, known));
    await engine.start(containerId, signal);
    const conversation = await openConversation(link, signal).catch(async (error: unknown) => {
      programs.keep(spec.image, null);
      throw error instanceof EngineError ? await explained(engine, containerId, error) : error;
    });
    if (conversation.bytecode !== null) programs.keep(spec.image, conversation.bytecode);
    let later = known?.later;
    function bringModules(): void {
      if (later) link.input.write(encodeFrame("B", later));
      later = undefined;
    }
    let closed: Promise<void> | null = null;
    function close(): Promise<void> {
      closed ??= end().catch((error: unknown) => {
        closed = null;
        throw error;
      });
      return closed;
    }
    async function end(): Promise<void> {
      link.destroy();
      await engine.wait(containerId, AbortSignal.timeout(partingMs)).catch(() => {});
      await remove();
    }
    return {
      backend: "engine",
      containerId,
      pythonVersion: conversation.pythonVersion,
      preloadErrors: conversation.preloadErrors,
      startupMs: performance.now() - beganAtMs,
      died: conversation.died,
      async install(packages, limit) {
        await conversation.install(packages, limit).catch(async (error: unknown) => {
          if (!(error instanceof EngineError)) throw error;
          // Under gVisor a process that runs out of memory ends its container.
          const found = await autopsy(engine, containerId);
          throw found?.outOfMemory ? new InstallError(noMemory, { cause: error }) : error;
        });
      },
      giveFiles: (files, limit) => conversation.giveFiles(files, limit),
      beginSession(env) {
        bringModules();
        conversation.beginSession(env);
      },
      whyDied: () => autopsy(engine, containerId),
      async run(job, options) {
        if (job.results) bringModules();
        const report = await conversation.run(job, options);
        return isCutShort(report) ? autopsied(engine, containerId, report) : report;
      },
      close,
    };
  } catch (error) {
    // The first error is reported; if the removal fails too, the reaper removes the container
    // later.
    await remove().catch(() => {});
    throw error;
  }
}

/** Makes an engine call with a timeout that does not depend on the caller. */
async function bounded<T>(request: (limit: AbortSignal) => Promise<T>): Promise<T> {
  const limit = AbortSignal.timeout(callMs);
  try {
    return await request(limit);
  } catch (cause) {
    if (!limit.aborted) throw cause;
    const message = `the engine did not answer within ${callMs / 1000} s`;
    throw new EngineError("unavailable", message, { cause });
  }
}

/** Adds to a lost run how the engine says its container ended. */
async function autopsied(engine: Engine, id: string, report: RunReport): Promise<RunReport> {
  const found = await autopsy(engine, id);
  if (found === null) return report;
  const lostReason = `${report.lostReason} (the container's exit code is ${found.exitCode})`;
  return { ...report, outOfMemory: found.outOfMemory, lostReason };
}

/** Adds to a failed start how the engine says its container ended. */
async function explained(engine: Engine, id: string, error: EngineError): Promise<EngineError> {
  const found = await autopsy(engine, id);
  if (found === null) return error;
  const memory = found.outOfMemory ? ", out of memory" : "";
  const message = `${error.message} (the container's exit code is ${found.exitCode}${memory})`;
  return new EngineError(error.code, message, { cause: error, transient: error.transient });
}

/** How the engine says a container ended; null if it does not say. */
async function autopsy(engine: Engine, id: string): Promise<ContainerState | null> {
  const signal = AbortSignal.timeout(autopsyMs);
  try {
    await engine.wait(id, signal);
    const state = await engine.inspect(id, signal);
    if (state.exitCode !== 137 || state.outOfMemory) return state;
    return { ...state, outOfMemory: await engine.tellsOutOfMemory(id, signal) };
  } catch {
    return null;
  }
}
