import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { describeError } from "../../../shared/log-line.ts";
import { Probe } from "../../../shared/wire/client/probe.ts";
import type { Deps } from "../../deps.ts";
import { unavailable } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { ping } from "../../store/ping.ts";
import { probe as example } from "../../openapi/examples/health.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { json } from "../../openapi/responses/bodies.ts";

/** Milliseconds that a probe waits for the database. */
const answerWithinMs = 2000;

const silent = "The database does not answer.";
const stopping = "The service is stopping.";

const getLiveness = createRoute({
  method: "get",
  path: "/health/live",
  operationId: "getLiveness",
  tags: ["Health"],
  summary: "Liveness: whether the process serves",
  description: "Checks only the process itself. Needs no key and is not rate limited.",
  security: [],
  responses: { 200: json(Probe, "It serves.", { example }) },
});

const getReadiness = createRoute({
  method: "get",
  path: "/health/ready",
  operationId: "getReadiness",
  tags: ["Health"],
  summary: "Readiness: whether requests should be sent here",
  description:
    "200 if the database answers and the service is not stopping. Agents and their engines are not checked: jobs may be submitted without them. Needs no key and is not rate limited.",
  security: [],
  responses: {
    200: json(Probe, "It can take requests.", { example }),
    503: problem("unavailable", {
      detail: silent,
      error: { type: "service_unavailable", message: silent, phase: "startup" },
    }),
  },
});

/** Probes for a process supervisor and for a load balancer. */
export function probeRoutes(app: OpenAPIHono<AppEnv>, { db, isStopping }: Deps): void {
  app.openapi(getLiveness, (c) => c.json({ status: "ok" } as const, 200));

  app.openapi(getReadiness, async (c) => {
    if (isStopping()) throw unavailable(stopping, 5);
    try {
      await within(ping(db), answerWithinMs);
    } catch (error) {
      c.get("log").warn("not ready: {reason}", { reason: describeError(error) });
      throw unavailable(silent, 5);
    }
    return c.json({ status: "ok" } as const, 200);
  });
}

async function within(call: Promise<void>, timeoutMs: number): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer in ${timeoutMs} ms`)), timeoutMs);
  try {
    await Promise.race([call, late]);
  } finally {
    clearTimeout(timer);
  }
}
