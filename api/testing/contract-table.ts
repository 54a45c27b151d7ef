import { afterAll, beforeAll, describe, test } from "vitest";
import { agentRows } from "./contract/agents.ts";
import { answerRows } from "./contract/answers.ts";
import { Api } from "./contract/api.ts";
import { artifactRows } from "./contract/artifacts.ts";
import { authRows } from "./contract/auth.ts";
import { deadLetterRows } from "./contract/dead-letters.ts";
import { deriveRows } from "./contract/derive.ts";
import { exactnessRows } from "./contract/exactness.ts";
import { batchKeyRows } from "./contract/batch-keys.ts";
import { batchRows } from "./contract/batches.ts";
import { buildLeaseRows } from "./contract/build-leases.ts";
import { buildRows } from "./contract/builds.ts";
import { eventRows } from "./contract/events.ts";
import { executeEventRows } from "./contract/execute-events.ts";
import { executeRows } from "./contract/execute.ts";
import { executionRows } from "./contract/executions.ts";
import { healthRows } from "./contract/health.ts";
import { hostRows } from "./contract/hosts.ts";
import { fileRows } from "./contract/files.ts";
import { idempotencyRows } from "./contract/idempotency.ts";
import { foreignPageRows } from "./contract/foreign-pages.ts";
import { imageRows } from "./contract/images.ts";
import { jobTypeRows } from "./contract/job-types.ts";
import { jobRows } from "./contract/jobs.ts";
import { inputFileRows } from "./contract/input-files.ts";
import { inputRows } from "./contract/inputs.ts";
import { joinRows } from "./contract/join.ts";
import { leasePostRows } from "./contract/lease-posts.ts";
import { listRows } from "./contract/lists.ts";
import { scheduleRows } from "./contract/schedule.ts";
import { metricsRows } from "./contract/metrics.ts";
import { placementRows } from "./contract/placement.ts";
import { probeRows } from "./contract/probes.ts";
import { protocolRows } from "./contract/protocol.ts";
import { rangeRows } from "./contract/ranges.ts";
import { rateLimitRows } from "./contract/rate-limit.ts";
import { refusedFileRows } from "./contract/refused-files.ts";
import { removeRows } from "./contract/remove.ts";
import type { Row } from "./contract/row.ts";
import { type ServerName, servers } from "./contract/servers.ts";
import { validationRows } from "./contract/validation.ts";
import { webhookEventRows } from "./contract/webhook-events.ts";
import { webhookRows } from "./contract/webhooks.ts";

/** The rows of one file of contract/. */
export interface Group {
  file: string;
  title: string;
  /** The endpoints that it is about; default: several, or those of agents. */
  endpoints?: readonly string[];
  rows: readonly Row[];
}

/** The contract, rule by rule, as an HTTP client sees it. `npm run docs` lists every rule in docs/contract.md. */
export const contractGroups: readonly Group[] = [
  {
    file: "health.ts",
    title: "Health and pool",
    endpoints: ["GET /health", "GET /pool/stats", "GET /pool/history"],
    rows: healthRows,
  },
  {
    file: "hosts.ts",
    title: "Hosts and agents",
    endpoints: [
      "GET /hosts",
      "POST /hosts/invitations",
      "POST /hosts/{id}/revoke",
      "POST /hosts/{id}/rotate",
      "POST /agents/{id}/drain",
      "POST /agents/{id}/resume",
    ],
    rows: hostRows,
  },
  {
    file: "probes.ts",
    title: "Probes",
    endpoints: ["GET /health/live", "GET /health/ready"],
    rows: probeRows,
  },
  { file: "metrics.ts", title: "Metrics", endpoints: ["GET /metrics"], rows: metricsRows },
  {
    file: "execute.ts",
    title: "Synchronous jobs",
    endpoints: ["POST /execute"],
    rows: executeRows,
  },
  {
    file: "jobs.ts",
    title: "Asynchronous jobs",
    endpoints: [
      "POST /execute/async",
      "GET /jobs/{id}",
      "GET /jobs/{id}/result",
      "POST /jobs/{id}/cancel",
    ],
    rows: jobRows,
  },
  {
    file: "events.ts",
    title: "Live output",
    endpoints: ["GET /jobs/{id}/events", "GET /jobs/{id}/logs", "GET /jobs/{id}/artifacts"],
    rows: eventRows,
  },
  { file: "execute-events.ts", title: "Live output of synchronous jobs", rows: executeEventRows },
  { file: "idempotency.ts", title: "Idempotency keys", rows: idempotencyRows },
  { file: "inputs.ts", title: "Standard input and arguments", rows: inputRows },
  {
    file: "derive.ts",
    title: "Rerun and fork",
    endpoints: ["POST /jobs/{id}/rerun", "POST /jobs/{id}/fork"],
    rows: deriveRows,
  },
  {
    file: "artifacts.ts",
    title: "Artifacts",
    endpoints: [
      "GET /jobs/{job_id}/artifacts/{artifact_name}",
      "HEAD /jobs/{job_id}/artifacts/{artifact_name}",
    ],
    rows: artifactRows,
  },
  { file: "ranges.ts", title: "Ranges of artifacts", rows: rangeRows },
  {
    file: "files.ts",
    title: "Uploaded files",
    endpoints: [
      "POST /files",
      "GET /files",
      "GET /files/{id}",
      "HEAD /files/{id}",
      "DELETE /files/{id}",
    ],
    rows: fileRows,
  },
  { file: "input-files.ts", title: "Files of a request", rows: inputFileRows },
  {
    file: "refused-files.ts",
    title: "Files of a request that are refused",
    rows: refusedFileRows,
  },
  {
    file: "executions.ts",
    title: "Records",
    endpoints: ["GET /executions", "GET /executions/{id}"],
    rows: executionRows,
  },
  {
    file: "batches.ts",
    title: "Batches",
    endpoints: ["POST /execute/batch", "GET /batches/{id}", "POST /batches/{id}/cancel"],
    rows: batchRows,
  },
  { file: "batch-keys.ts", title: "Idempotency keys of batches", rows: batchKeyRows },
  { file: "lists.ts", title: "Lists", rows: listRows },
  { file: "schedule.ts", title: "When and how often a job runs", rows: scheduleRows },
  {
    file: "remove.ts",
    title: "Removing records",
    endpoints: ["DELETE /executions/{id}"],
    rows: removeRows,
  },
  {
    file: "dead-letters.ts",
    title: "Dead letters",
    endpoints: ["GET /dlq", "GET /dlq/stats", "DELETE /dlq/{id}"],
    rows: deadLetterRows,
  },
  {
    file: "webhooks.ts",
    title: "Webhooks",
    endpoints: ["GET /webhooks/deliveries", "POST /webhooks/deliveries/{id}/resend"],
    rows: webhookRows,
  },
  {
    file: "webhook-events.ts",
    title: "Webhook events that a client listens for",
    endpoints: ["GET /webhooks/events"],
    rows: webhookEventRows,
  },
  {
    file: "job-types.ts",
    title: "Job types",
    endpoints: ["GET /job-types", "GET /job-types/{name}"],
    rows: jobTypeRows,
  },
  { file: "placement.ts", title: "Placement of jobs", rows: placementRows },
  {
    file: "builds.ts",
    title: "Builds",
    endpoints: ["POST /job-types/{name}/build", "GET /job-types/{name}/build"],
    rows: buildRows,
  },
  { file: "build-leases.ts", title: "Leases of builds", rows: buildLeaseRows },
  { file: "images.ts", title: "Built images", rows: imageRows },
  { file: "validation.ts", title: "Requests that are not valid", rows: validationRows },
  { file: "exactness.ts", title: "Exact text and numbers", rows: exactnessRows },
  { file: "answers.ts", title: "Every answer", endpoints: ["GET /openapi.json"], rows: answerRows },
  { file: "auth.ts", title: "Keys", rows: authRows },
  { file: "foreign-pages.ts", title: "Pages of other sites", rows: foreignPageRows },
  { file: "rate-limit.ts", title: "Rate limit", rows: rateLimitRows },
  { file: "agents.ts", title: "Agents", rows: agentRows },
  { file: "join.ts", title: "Joining agents", rows: joinRows },
  { file: "protocol.ts", title: "Protocol version of agents", rows: protocolRows },
  { file: "lease-posts.ts", title: "What agents post for a lease", rows: leasePostRows },
];

export const contractTable: Row[] = contractGroups.flatMap(({ rows }) => rows);

interface Service {
  url: string;
  databaseUrl: string;
  close(): Promise<unknown>;
}

/**
 * Runs rows of the table against a service, one service for each configuration that they need.
 *
 * @param start Starts a service with AIRLOCK_ variables and an empty store.
 */
export function testContract(
  start: (vars: Record<string, string>) => Promise<Service>,
  table: Row[],
): void {
  for (const name of Object.keys(servers) as ServerName[]) {
    const rows = table.filter(({ server = "open" }) => server === name);
    if (rows.length === 0) continue;
    // Services run in parallel. The rows of one service share its store, so they run one after the other.
    describe(`a service ${name}`, { concurrent: true }, () => {
      let service: Service;
      beforeAll(async () => {
        service = await start(servers[name]);
      });
      afterAll(() => service.close());

      // oxlint-disable-next-line vitest/expect-expect -- every row has its own
      test.each(rows)("$rule", { concurrent: false }, async ({ check }) => {
        const api = new Api(service.url, service.databaseUrl);
        try {
          await check(api);
        } finally {
          await api.tidy();
        }
      });
    });
  }
}
