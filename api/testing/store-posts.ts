import { createHash } from "node:crypto";
import type { Deps } from "../deps.ts";
import {
  finished,
  leasedExecution,
  logged,
  released,
  started,
  uploaded,
} from "../agents/lease-posts.ts";
import { artifactName, logText, outcomes, resultText } from "./store-model.ts";
import { success } from "./scripted-agent.ts";

export type Post = "start" | "log" | "upload" | "result" | "release";

export const releaseError = { type: "docker_error", message: "gone", phase: "startup" } as const;

/** Posts about a lease as an agent does; each number makes another body. */
export async function sendPost(
  deps: Deps,
  leaseId: string,
  tokenHash: string,
  { what, body }: { what: Post; body: number },
): Promise<void> {
  const execution = await leasedExecution(deps, leaseId, tokenHash);
  switch (what) {
    case "start":
      return started(deps, execution, { job_ref: `ref ${body}` });
    case "log":
      return logged(deps, execution, {
        stream: "stdout",
        offset: 0,
        data_base64: btoa(logText(body)),
      });
    case "upload": {
      const bytes = new TextEncoder().encode(`file ${body}`);
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      const stream = new Blob([bytes]).stream();
      return uploaded(deps, execution, artifactName, stream, { sizeBytes: bytes.length, sha256 });
    }
    case "result":
      await finished(deps, execution, leaseId, {
        ...success,
        ...outcomes[body]!,
        stdout_base64: btoa(resultText(body)),
      });
      return;
    case "release":
      return released(deps, leaseId, { error: releaseError });
  }
}
