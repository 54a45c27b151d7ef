import { z } from "zod";

export const streamNames = ["stdout", "stderr"] as const;
export type StreamName = (typeof streamNames)[number];

/** Consecutive bytes of one stream of a running execution. */
export const OutputPart = z.object({
  stream: z.enum(streamNames),
  /** Number of bytes of this stream before the part. */
  offset: z.int().min(0),
  data_base64: z.base64().min(1),
});
export type OutputPart = z.infer<typeof OutputPart>;

/** Parts of both streams, in the order in which the code wrote them; each continues its stream. */
const OutputParts = z
  .array(OutputPart)
  .min(1)
  .max(1000)
  .superRefine((parts, context) => {
    const ends = new Map<StreamName, number>();
    for (const [i, { stream, offset, data_base64 }] of parts.entries()) {
      const end = ends.get(stream);
      if (end !== undefined && offset !== end) {
        const message = `must be ${end}, where the part of ${stream} before it ends`;
        context.addIssue({ code: "custom", path: [i, "offset"], message });
      }
      ends.set(stream, offset + base64Bytes(data_base64));
    }
  });

/** New output of a running execution, stored so that clients see it and the loss of its agent leaves it. */
export const OutputReport = z.object({ parts: OutputParts });
export type OutputReport = z.infer<typeof OutputReport>;

/** Agents of earlier builds post one part at a time. */
export const AnyOutputReport = z.union([
  OutputReport,
  OutputPart.transform((part): OutputReport => ({ parts: [part] })),
]);

/** Number of bytes that a base64 text stands for. */
function base64Bytes(text: string): number {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return (text.length / 4) * 3 - padding;
}

/** Output is bounded by a cap. This many bytes from the start are sent at once, the rest when the code has ended. */
export function liveBytes(cap: number): number {
  return cap - Math.min(Math.floor(cap / 2), 1024 * 1024);
}
