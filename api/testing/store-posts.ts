import { createHash } from "node:crypto";
import type { Deps } from "../deps.ts";
import {
  recordResult,
  requireLease,
  recordLog,
  releaseLease,
  recordStart,
  storeUpload,
} from "../agents/lease-posts.ts";
import { artifactName, logText, outcomes, resultText } from "./store-model.ts";
import { success } from "./scripted-agent.ts";

export type Post = "start" | "log" | "upload" | "result" | "release";

export const releaseError = { type: "docker_error", message: "gone", phase: "startup" } as const;

/** Posts for a lease, like an agent's. Each number gives a different body. */
export async function sendPost(
  deps: Deps,
  leaseId: string,
  tokenHash: string,
  { what, body }: { what: Post; body: number },
): Promise<void> {
  const execution = await requireLease(deps, leaseId, tokenHash);
  switch (what) {
    case "start":
      return recordStart(deps, execution, { job_ref: `ref ${body}` });
    case "log":
      return recordLog(deps, execution, {
        parts: [{ stream: "stdout", offset: 0, data_base64: btoa(logText(body)) }],
      });
    case "upload": {
      const bytes = new TextEncoder().encode(`file ${body}`);
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      const stream = new Blob([bytes]).stream();
      return storeUpload(deps, execution, artifactName, stream, {
        sizeBytes: bytes.length,
        sha256,
      });
    }
    case "result":
      await recordResult(deps, execution, leaseId, {
        ...success,
        ...outcomes[body]!,
        stdout_base64: btoa(resultText(body)),
      });
      return;
    case "release":
      return releaseLease(deps, leaseId, { error: releaseError });
  }
}
