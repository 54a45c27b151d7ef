import type { Logger } from "@logtape/logtape";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import type { LeasedCall } from "../../shared/wire/agent/session.ts";
import { sizeOf } from "../files/job-files.ts";
import { type Acquired, sandboxJob } from "../job/acquire.ts";
import type { FindPlace } from "../job/place.ts";
import { type RunDeps, runLease } from "../job/run.ts";
import type { Lease } from "../lease/leases.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { CallFile, SandboxCall } from "../sandbox/job.ts";
import type { SpooledArtifact } from "../sandbox/report.ts";
import { parseBytes } from "../../shared/bytes.ts";

/** A session that is ready here. */
export interface OpenSession {
  /** Where its calls run. */
  readonly findPlace: FindPlace;
}

/** The sessions that are ready here, by their leases. */
export type OpenSessions = Map<string, OpenSession>;

export type CallDeps = RunDeps & { readonly openSessions: OpenSessions; readonly log: Logger };

/** Runs a call in the sandbox of its session. Returns the next call, as `runLease` does, unless the session has ended. */
export async function runCall(
  deps: CallDeps,
  lease: Lease,
  takes: () => boolean,
): Promise<readonly LeasedJob[]> {
  const id = lease.job.call?.session_lease_id ?? "";
  const findPlace = deps.openSessions.get(id)?.findPlace ?? findNone;
  return runLease(deps, lease, () => takes() && deps.openSessions.has(id), findPlace);
}

const findNone: FindPlace = () =>
  Promise.reject(new JobRefusal("internal_error", "The session has ended at its agent."));

/** Calls run in the sandbox of `acquired`, one at a time. */
export function openSession(acquired: Acquired): OpenSession {
  const { sandbox } = acquired;
  /** Bytes of the files in /input by name: they use the memory of the session. */
  const given = new Map<string, number>();
  /** Hashes of the files that the API has, by name: a file is sent again if it has changed. */
  const known = new Map<string, string>();

  function isNew({ name, sha256 }: SpooledArtifact): boolean {
    if (name.startsWith("_fetched/")) return true;
    const isChanged = known.get(name) !== sha256;
    known.set(name, sha256);
    return isChanged;
  }

  function admit(files: readonly CallFile[], { job_type }: LeasedJob): void {
    const inputs = files.filter(({ to }) => to === "input");
    for (const { name, sizeBytes } of inputs) {
      const other = [...given.keys()].find((each) => isInTheWay(each, name));
      if (other !== undefined) throw inTheWay(name, other);
      given.set(name, sizeBytes);
    }
    const inputBytes = [...given.values()].reduce((sum, bytes) => sum + bytes, 0);
    const workBytes = sizeOf(files) - sizeOf(inputs);
    if (inputBytes + workBytes > parseBytes(job_type.memory_limit) / 4) {
      for (const { name } of inputs) given.delete(name);
      throw tooLarge;
    }
    for (const { name, to, sha256 } of files) if (to === "work") known.set(name, sha256);
  }

  return {
    async findPlace(deps, { job, cancel, drop }, files) {
      const signal = AbortSignal.any([cancel.signal, drop.signal]);
      await deps.admission.admitJob(job, acquired.runtime, signal);
      const brought = await files.fetch(signal);
      admit(brought, job);
      return {
        acquired: {
          ...acquired,
          job: { ...sandboxJob(job), call: job.call && sandboxCall(job.call, brought) },
          sandbox: {
            ...sandbox,
            backend: sandbox.backend,
            async run(own, options) {
              const report = await sandbox.run(own, options);
              return { ...report, artifacts: report.artifacts.filter(isNew) };
            },
          },
        },
        [Symbol.asyncDispose]: () => Promise.resolve(),
      };
    },
  };
}

function sandboxCall(call: LeasedCall, files: readonly CallFile[]): SandboxCall {
  const { number, context, contexts, restart, env, fetch } = call;
  return { number, context, contexts, restart, env, fetch, files };
}

const tooLarge = new JobRefusal(
  "config_error",
  "The files that the calls of the session have brought have more bytes than a quarter of its memory limit.",
);

/** Whether one is a folder of the other. */
const isInTheWay = (one: string, other: string): boolean =>
  one.startsWith(`${other}/`) || other.startsWith(`${one}/`);

const inTheWay = (name: string, other: string): JobRefusal =>
  new JobRefusal(
    "config_error",
    `The session has ${JSON.stringify(other)} in /input, so there can be no ${JSON.stringify(name)}.`,
  );
