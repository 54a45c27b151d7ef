import { equal, match } from "node:assert/strict";
import { checkOutcomes } from "./outcomes.ts";
import type { World } from "./sections.ts";
import { type Service, type ServiceOptions, startService } from "./service.ts";

export type ServiceCheck = {
  /** As whom or with what the service starts. */
  readonly how?: string;
  /** Whether a job can see the limits that the kernel holds for it. */
  readonly limits?: boolean;
  /** Runs a command of the engine's own program, such as `ps`. */
  readonly engine?: (args: string) => Promise<string>;
  /** Whether jobs are forked inside one container. */
  readonly forked?: boolean;
};

/** Starts the service, runs jobs of every outcome, and stops it with nothing left behind. */
export async function checkService(
  { guest, checks: { check } }: World,
  options: ServiceOptions,
  {
    how = "as root",
    limits = true,
    engine = (args) => guest.run(`docker ${args}`),
    forked = false,
  }: ServiceCheck = {},
): Promise<void> {
  const env = { ...options.env, ...(forked && { AIRLOCK_CONTAINER_BACKEND: "zygote" }) };
  let service: Service | undefined;
  await check(`npm start gets ready ${how}`, async () => {
    service = await startService(guest, { ...options, env });
  });
  if (!service) {
    await guest.run(`systemctl stop ${options.unit} || true`);
    return;
  }
  const { stop } = service;
  await checkOutcomes({ check }, service, { limits });
  if (forked) {
    await check("one container is there, the mother of the jobs", async () => {
      match(await engine("ps --all --format '{{.Labels}}'"), /^[^\n]*\bmother-[^\n]*$/);
    });
  }
  await check("npm start ends well and leaves no container", async () => {
    await stop();
    equal(await engine("ps --all --quiet"), "");
  });
}
