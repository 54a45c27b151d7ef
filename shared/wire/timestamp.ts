import { z } from "zod";

/** ISO 8601, UTC, milliseconds. */
export const Timestamp = z.iso
  .datetime({ precision: 3 })
  .meta({ example: "2026-11-21T09:30:00.000Z" });
