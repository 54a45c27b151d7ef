import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Deps } from "../../deps.ts";
import { isLive } from "../../domain/agents/capacity.ts";
import type { AppEnv } from "../../http/context.ts";
import { familiesText, textFormat } from "../../metrics/family.ts";
import { storedFamilies } from "../../metrics/stored.ts";
import { listAgents } from "../../store/agents/agents.ts";
import { storedFileBytes } from "../../store/files.ts";
import { readCounts } from "../../store/statistics/counts.ts";
import { databaseBytes } from "../../store/size.ts";
import { readQueueStats } from "../../store/statistics/queue.ts";
import { version } from "../../version.ts";

const getMetrics = createRoute({
  method: "get",
  path: "/metrics",
  operationId: "getMetrics",
  tags: ["Health"],
  summary: "Metrics for Prometheus",
  description:
    "Text format 0.0.4. Metrics from the database are the same whichever process answers. Metrics of requests, and those that begin with `process_` or `nodejs_`, describe the answering process and do not exist on Workers.",
  responses: {
    200: {
      description: "Metrics.",
      content: {
        "text/plain": {
          schema: z.string(),
          example: 'airlock_executions_total{job_type="default",status="succeeded"} 42\n',
        },
      },
    },
  },
});

export function metricsRoute(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config, db, now, processMetrics } = deps;
  app.openapi(getMetrics, async (c) => {
    const [database, files, counts, queue, known, own] = await Promise.all([
      databaseBytes(db),
      storedFileBytes(db),
      readCounts(db),
      readQueueStats(db),
      listAgents(db),
      processMetrics?.text() ?? "",
    ]);
    const agents = known.filter((agent) => isLive(agent, config, now()));
    const bytes = { databaseBytes: database, fileBytes: files };
    const stored = storedFamilies({ counts, queue, agents, ...bytes, version, now: now() }, config);
    return c.text(familiesText(stored) + own, 200, { "Content-Type": textFormat });
  });
}
