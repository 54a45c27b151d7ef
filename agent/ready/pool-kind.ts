import type { PoolKind } from "../../shared/wire/health.ts";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";

/** The counts of the kind that a request belongs to, made with zeros where it is new. */
export function poolKindOf(
  kinds: Map<string, PoolKind>,
  { jobType, spec: { runtime } }: SandboxRequest,
  backend: PoolKind["backend"],
): PoolKind {
  const key = JSON.stringify([jobType, runtime]);
  const none = { ready: 0, starting: 0, in_use: 0 };
  const kind = kinds.get(key) ?? { job_type: jobType, runtime, backend, ...none };
  kinds.set(key, kind);
  return kind;
}
