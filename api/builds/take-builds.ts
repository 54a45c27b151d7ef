import type { LeasedBuild, PollRequest } from "../../shared/wire/agent/lease.ts";
import type { Deps } from "../deps.ts";
import type { BuildSpec, Environment } from "../domain/environment.ts";
import { imageRepository } from "../domain/image-name.ts";
import { mayBuild, servingAgents } from "../domain/agents/placement.ts";
import { imageTransport } from "./images.ts";
import { claimBuilds, expireBuilds, undeliveredBuilds } from "../store/builds/build-lease.ts";
import { openBuilds, type BuildRow } from "../store/builds/builds.ts";
import { listAgents } from "../store/agents/agents.ts";
import type { LeaseTerms } from "../store/jobs/lease.ts";

/** Leases builds to an agent that is free to build, only of job types whose labels it has. */
export async function takeBuilds(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
): Promise<LeasedBuild[]> {
  const { config, db } = deps;
  if ((await openBuilds(db)).length === 0) return [];
  await sweepBuilds(deps);
  const undelivered = await undeliveredBuilds(db, lease, request.builds);
  const free = request.free_builds - undelivered.length;
  const serving = servingAgents(await listAgents(db), config, lease.now);
  const canShareImages = imageTransport(config) !== "none";
  const jobTypes = environments
    .filter((environment) => mayBuild(request.agent, environment, serving, canShareImages))
    .map(({ jobType }) => jobType.name);
  const claimed = free > 0 ? await claimBuilds(db, lease, free, jobTypes) : [];
  return [...undelivered, ...claimed].flatMap((build) => describe(build, config));
}

function describe(build: BuildRow, config: Deps["config"]): LeasedBuild[] {
  if (build.leaseId === null) return [];
  const { base_image, requirements } = JSON.parse(build.spec) as BuildSpec;
  return [
    {
      lease_id: build.leaseId,
      attempt: build.attempt,
      correlation_id: build.correlationId,
      job_type: build.jobType,
      base_image,
      requirements,
      repository: imageRepository(build.imageRef, build.tag),
      tags: [...new Set([build.tag, "latest"])],
      timeout_s: config.build_timeout,
      share: imageTransport(config),
      share_max_bytes: config.max_image_bytes,
    },
  ];
}

/** Ends or requeues the builds whose agents are gone, and wakes the requests that wait for them. */
export async function sweepBuilds({ db, notifier, now, log }: Deps): Promise<void> {
  for (const { id, status, jobType, correlationId } of await expireBuilds(db, now())) {
    log
      .with({ correlationId })
      .warn("lease of a build of {jobType} expired: now {status}", { jobType, status });
    notifier.notify(status === "queued" ? "queue" : `build:${id}`);
  }
}
