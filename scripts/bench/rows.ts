import type { Row } from "./row.ts";
import { agentMemory } from "./rows/agent-memory.ts";
import { apiBatch } from "./rows/api-batch.ts";
import { apiHistory } from "./rows/api-history.ts";
import { apiJobs } from "./rows/api-jobs.ts";
import { apiSubmits } from "./rows/api-submits.ts";
import { cold } from "./rows/cold.ts";
import { cpu } from "./rows/cpu.ts";
import { forked, forkedPreload, forkedThroughput } from "./rows/forked.ts";
import { forkedMemory, forkedStdout } from "./rows/forked-load.ts";
import { live, liveProcesses, liveWorker } from "./rows/live.ts";
import { preload } from "./rows/preload.ts";
import { requirements } from "./rows/requirements.ts";
import { throughput } from "./rows/throughput.ts";
import { trace } from "./rows/trace.ts";
import { warm, warmGvisor } from "./rows/warm.ts";
import { idleWatchers, watchersOfOne } from "./rows/watchers.ts";
import { worker } from "./rows/worker.ts";

/** In the order in which they are measured and shown. */
export const rows: readonly Row[] = [
  warm,
  warmGvisor,
  preload,
  cold,
  throughput,
  forked,
  forkedThroughput,
  forkedPreload,
  forkedStdout,
  forkedMemory,
  cpu,
  requirements,
  apiSubmits,
  apiBatch,
  apiJobs,
  apiHistory,
  agentMemory,
  worker,
  live,
  liveProcesses,
  liveWorker,
  idleWatchers,
  watchersOfOne,
  trace,
];
