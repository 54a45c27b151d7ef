import type { Row } from "./row.ts";
import { warm, warmGvisor } from "./rows/warm.ts";

/** In the order in which they are measured and shown. */
export const rows: readonly Row[] = [warm, warmGvisor];
