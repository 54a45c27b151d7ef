import { z } from "zod";
import { JsonObjectSchema } from "../../../shared/wire/json-object.ts";
import { MimeBundle } from "../../../shared/wire/result-item.ts";
import { FrameError } from "./frames.ts";

/** JSON payloads of the supervisor's frames; python/supervisor.py and python/collector.py write them. */
export const Ready = z.object({
  python_version: z.string().regex(/^3\.[0-9]{1,4}\.[0-9]{1,4}$/),
  preload_errors: z.record(z.string(), z.string()),
});
export type Ready = z.infer<typeof Ready>;

export const NotReady = z.object({ message: z.string(), output: z.string() });

/** A bound that no run can reach: 30 years of one CPU. */
const millisecondsMax = 1e12;

/** How the compiler ended. */
export const Compiled = z.object({
  exit_status: z.int().min(0).max(255).nullable(),
  exit_signal: z.int().min(1).max(64).nullable(),
  timed_out: z.boolean(),
  stdout: z.string(),
  stderr: z.string(),
  wall_ms: z.number().min(0).max(millisecondsMax),
});
export type Compiled = z.infer<typeof Compiled>;

export const Exit = z
  .object({
    ending: z.enum(["exited", "timeout", "cancelled", "sockets", "locks", "interpreter_ended"]),
    exit_status: z.int().min(0).max(255).nullable(),
    exit_signal: z.int().min(1).max(64).nullable(),
    out_of_memory: z.boolean(),
    exception: z.object({ mro: z.array(z.string()).min(1), message: z.string() }).nullable(),
    wall_ms: z.number().min(0).max(millisecondsMax),
    cpu_ms: z.number().min(0).max(millisecondsMax),
    max_rss_bytes: z.int().min(0),
    truncated: z.tuple([z.boolean(), z.boolean()]),
    /** Only of a cell. */
    results_truncated: z.boolean().optional(),
  })
  .refine(({ exit_status, exit_signal }) => (exit_status === null) !== (exit_signal === null));
export type Exit = z.infer<typeof Exit>;

/** An item of a cell, as the code may also have made it: it is data, and no message of the protocol. */
export const Item = z.object({
  main: z.boolean(),
  data: MimeBundle.refine((data) => Object.keys(data).length > 0),
});

/** A call, as the code may also have made it. */
export const Call = z.object({ id: z.int().min(1), name: z.string(), arguments: JsonObjectSchema });
export type Call = z.infer<typeof Call>;

export const FileHead = z.object({
  name: z.string(),
  size: z.int().min(0),
  /** The file is /output/result.json, which is read and not stored. */
  result: z.boolean(),
});
export type FileHead = z.infer<typeof FileHead>;

const SkipReason = z.enum([
  "not_a_regular_file",
  "hard_link",
  "unsafe_name",
  "name_too_long",
  "too_deep",
  "too_many_files",
  "too_many_bytes",
  "unreadable",
  "missing",
  "changed",
  "not_searched",
]);

/** A name as collector.py escapes it for logs and messages. */
const ShownName = z.string().regex(/^[ -~]{0,200}$/);

export const OutputSummary = z.object({
  /** Why result.json could not be sent as the result. */
  result_problem: SkipReason.nullable(),
  skipped: z
    .array(
      z.object({ reason: SkipReason, count: z.int().min(1), names: z.array(ShownName).max(10) }),
    )
    .max(SkipReason.options.length),
});
export type OutputSummary = z.infer<typeof OutputSummary>;

/** @throws FrameError if the payload is not JSON of that shape. */
export function parseMessage<T>(schema: z.ZodType<T>, payload: Buffer): T {
  try {
    return schema.parse(JSON.parse(payload.toString("utf8")));
  } catch (cause) {
    throw new FrameError("a message that is not in the protocol", { cause });
  }
}
