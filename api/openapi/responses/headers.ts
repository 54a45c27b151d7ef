import type { OpenAPIHono } from "@hono/zod-openapi";
import type { AppEnv } from "../../http/context.ts";
import { correlationId, jobId } from "../examples/jobs.ts";

const text = { type: "string" } as const;
const count = { type: "integer", minimum: 0 } as const;
const etag = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

/** Every response header that the API promises. */
const responseHeaders = {
  "X-Correlation-ID": {
    description: "The correlation id: the request's own, or a new one.",
    schema: text,
    example: correlationId,
  },
  "X-Content-Type-Options": { schema: { type: "string", const: "nosniff" } },
  "X-Frame-Options": { schema: { type: "string", const: "DENY" } },
  "RateLimit-Limit": {
    description: "Requests that a window allows.",
    schema: count,
    example: 120,
  },
  "RateLimit-Remaining": {
    description: "Requests left in this window.",
    schema: count,
    example: 118,
  },
  "RateLimit-Reset": {
    description: "Seconds until the window ends.",
    schema: count,
    example: 42,
  },
  "RateLimit-Policy": {
    description: "Requests; w: length of the window in seconds.",
    schema: text,
    example: "120;w=60",
  },
  "Retry-After": {
    description: "Seconds after which the same request may succeed.",
    schema: count,
    example: 5,
  },
  "WWW-Authenticate": {
    description: "How to authenticate.",
    schema: text,
    example: 'Bearer realm="airlock"',
  },
  Location: {
    description: "The status of the new job, or the new file.",
    schema: text,
    example: `/jobs/${jobId}`,
  },
  "Preference-Applied": {
    description: "The part of `Prefer` that was followed; left out without it.",
    schema: text,
    example: "wait=10",
  },
  ETag: { description: "SHA-256 of the file, quoted.", schema: text, example: `"${etag}"` },
  "Content-Length": { description: "Bytes.", schema: count, example: 20_481 },
  "Content-Disposition": {
    description: "attachment, with the artifact's name.",
    schema: text,
    example: "attachment; filename=\"plot.png\"; filename*=UTF-8''plot.png",
  },
  "Content-Range": {
    description: "The part that was sent, or the file's size.",
    schema: text,
    example: "bytes 0-1023/20481",
  },
  "X-Accel-Buffering": { schema: { type: "string", const: "no" } },
  "X-Next-Offset": {
    description: "The offset behind the last byte that was sent.",
    schema: count,
    example: 4711,
  },
  "Accept-Ranges": { schema: { type: "string", const: "bytes" } },
} as const;
export type ResponseHeader = keyof typeof responseHeaders;

/** Headers of every answer. The counts are present only if the request is counted. */
export const everywhere: ResponseHeader[] = [
  "X-Correlation-ID",
  "X-Content-Type-Options",
  "X-Frame-Options",
  "RateLimit-Limit",
  "RateLimit-Remaining",
  "RateLimit-Reset",
  "RateLimit-Policy",
];

export function registerHeaders(app: OpenAPIHono<AppEnv>): void {
  for (const [name, header] of Object.entries(responseHeaders)) {
    const required = !name.startsWith("RateLimit-") && name !== "Preference-Applied";
    app.openAPIRegistry.registerComponent("headers", name, { required, ...header });
  }
}

/** The OpenAPI description of response headers. */
export function headers(...names: ResponseHeader[]): Record<string, { $ref: string }> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}
