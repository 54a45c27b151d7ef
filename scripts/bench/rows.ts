import type { Row } from "./row.ts";
import { api } from "./rows/api.ts";
import { cpu } from "./rows/cpu.ts";
import { creates } from "./rows/creates.ts";
import { forked } from "./rows/forked.ts";
import { idle } from "./rows/idle.ts";
import { live } from "./rows/live.ts";
import { memory } from "./rows/memory.ts";
import { preload } from "./rows/preload.ts";
import { sessions } from "./rows/sessions.ts";
import { throughput } from "./rows/throughput.ts";
import { tools } from "./rows/tools.ts";
import { turns } from "./rows/turns.ts";

/** In the order in which they are measured and shown. */
export const rows: readonly Row[] = [
  forked,
  throughput,
  preload,
  cpu,
  api,
  memory,
  live,
  turns,
  sessions,
  idle,
  creates,
  tools,
];
