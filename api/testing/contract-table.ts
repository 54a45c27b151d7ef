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
import { compatRows } from "./contract/compat.ts";
import { e2bRows } from "./contract/e2b.ts";
import { e2bInsideRows } from "./contract/e2b-inside.ts";
import { librechatRows } from "./contract/librechat.ts";
import { buildLeaseRows } from "./contract/build-leases.ts";
import { buildRows } from "./contract/builds.ts";
import { eventRows } from "./contract/events.ts";
import { executeEventRows } from "./contract/execute-events.ts";
import { executeRows } from "./contract/execute.ts";
import { executionRows } from "./contract/executions.ts";
import { healthRows } from "./contract/health.ts";
import { auditRows } from "./contract/audit.ts";
import { hostRows } from "./contract/hosts.ts";
import { fileRows } from "./contract/files.ts";
import { isolationRows } from "./contract/isolation.ts";
import { idempotencyRows } from "./contract/idempotency.ts";
import { foreignPageRows } from "./contract/foreign-pages.ts";
import { imageRows } from "./contract/images.ts";
import { jobTypeRows } from "./contract/job-types.ts";
import { jobRows } from "./contract/jobs.ts";
import { inputFileRows } from "./contract/input-files.ts";
import { inputRows } from "./contract/inputs.ts";
import { joinRows } from "./contract/join.ts";
import { keyRows } from "./contract/keys.ts";
import { leasePostRows } from "./contract/lease-posts.ts";
import { listRows } from "./contract/lists.ts";
import { scheduleRows } from "./contract/schedule.ts";
import { metricsRows } from "./contract/metrics.ts";
import { placementRows } from "./contract/placement.ts";
import { probeRows } from "./contract/probes.ts";
import { programRows } from "./contract/programs.ts";
import { resultRows } from "./contract/results.ts";
import { toolCallRows } from "./contract/tool-calls.ts";
import { toolRows } from "./contract/tools.ts";
import { protocolRows } from "./contract/protocol.ts";
import { rangeRows } from "./contract/ranges.ts";
import { rateLimitRows } from "./contract/rate-limit.ts";
import { refusedFileRows } from "./contract/refused-files.ts";
import { removeRows } from "./contract/remove.ts";
import type { Row } from "./contract/row.ts";
import { sessionCallRows } from "./contract/session-calls.ts";
import { sessionToolRows } from "./contract/session-tools.ts";
import { sessionFileRows } from "./contract/session-files.ts";
import { sessionRows } from "./contract/sessions.ts";
import { type ServerName, servers } from "./contract/servers.ts";
import { quotaRows } from "./contract/quotas.ts";
import { tenantRows } from "./contract/tenants.ts";
import { validationRows } from "./contract/validation.ts";
import { webhookEventRows } from "./contract/webhook-events.ts";
import { webhookRows } from "./contract/webhooks.ts";

/** The contract, rule by rule, as an HTTP client sees it, in the order in which rows of one service run. */
export const contractTable: Row[] = [
  ...healthRows,
  ...hostRows,
  ...auditRows,
  ...probeRows,
  ...metricsRows,
  ...executeRows,
  ...jobRows,
  ...eventRows,
  ...executeEventRows,
  ...idempotencyRows,
  ...inputRows,
  ...programRows,
  ...resultRows,
  ...toolRows,
  ...toolCallRows,
  ...sessionRows,
  ...sessionCallRows,
  ...sessionToolRows,
  ...sessionFileRows,
  ...deriveRows,
  ...artifactRows,
  ...rangeRows,
  ...fileRows,
  ...inputFileRows,
  ...refusedFileRows,
  ...executionRows,
  ...batchRows,
  ...batchKeyRows,
  ...listRows,
  ...scheduleRows,
  ...removeRows,
  ...deadLetterRows,
  ...webhookRows,
  ...webhookEventRows,
  ...jobTypeRows,
  ...placementRows,
  ...buildRows,
  ...buildLeaseRows,
  ...imageRows,
  ...validationRows,
  ...exactnessRows,
  ...answerRows,
  ...authRows,
  ...foreignPageRows,
  ...rateLimitRows,
  ...tenantRows,
  ...agentRows,
  ...joinRows,
  ...protocolRows,
  ...compatRows,
  ...librechatRows,
  ...e2bRows,
  ...e2bInsideRows,
  ...leasePostRows,
  // The last ones: unknown keys make the service careful for a minute.
  ...isolationRows,
  ...quotaRows,
  ...keyRows,
];

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
