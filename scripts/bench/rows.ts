import type { Row } from "./row.ts";
import { api } from "./rows/api.ts";
import { cpu } from "./rows/cpu.ts";
import { forked } from "./rows/forked.ts";
import { live } from "./rows/live.ts";
import { memory } from "./rows/memory.ts";
import { preload } from "./rows/preload.ts";
import { throughput } from "./rows/throughput.ts";
import { turns } from "./rows/turns.ts";

/** In the order in which they are measured and shown. */
export const rows: readonly Row[] = [forked, throughput, preload, cpu, api, memory, live, turns];
