import type { Result } from "../store/jobs/finish.ts";

/** What the store keeps of a run that wrote nothing. */
export const result: Result = {
  status: "succeeded",
  exit_code: 0,
  error: null,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  output: null,
  stdout_truncated: false,
  stderr_truncated: true,
  output_json: null,
  timing: {
    startup_ms: 1,
    dep_install_ms: 0,
    execution_ms: 2,
    total_ms: 3,
    phase_at_exit: "completed",
  },
  resource_usage: { max_rss_mb: 12.5, cpu_time_ms: 4, wall_time_ms: 5 },
  job_ref: "default@sha256:0",
  container_runtime: "runsc",
  hash: "hash",
};
