import { afterAll, beforeAll, describe, test } from "vitest";
import { answerRows, authRows, foreignPageRows, rateLimitRows } from "./contract/access.ts";
import { agentRows, hostRows, joinRows, leasePostRows, protocolRows } from "./contract/agents.ts";
import { Api, type Row, type ServerName, servers } from "./contract/api.ts";
import { batchKeyRows, batchRows, idempotencyRows } from "./contract/batches.ts";
import { compatRows, librechatRows } from "./contract/compat.ts";
import { e2bInsideRows, e2bRows } from "./contract/e2b.ts";
import { eventRows, executeEventRows, resultRows } from "./contract/events.ts";
import {
  deadLetterRows,
  deriveRows,
  executionRows,
  listRows,
  removeRows,
} from "./contract/executions.ts";
import {
  artifactRows,
  fileRows,
  inputFileRows,
  rangeRows,
  refusedFileRows,
} from "./contract/files.ts";
import { buildLeaseRows, buildRows, imageRows, jobTypeRows } from "./contract/images.ts";
import { isolationRows } from "./contract/isolation.ts";
import { executeRows, jobRows, placementRows, scheduleRows } from "./contract/jobs.ts";
import { healthRows, metricsRows, probeRows } from "./contract/monitoring.ts";
import { exactnessRows, inputRows, programRows, validationRows } from "./contract/requests.ts";
import {
  sessionCallRows,
  sessionFileRows,
  sessionRows,
  sessionToolRows,
} from "./contract/sessions.ts";
import { auditRows, keyRows, quotaRows, tenantRows } from "./contract/tenants.ts";
import { toolCallRows, toolRows } from "./contract/tools.ts";
import { webhookEventRows, webhookRows } from "./contract/webhooks.ts";

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

/** With more rows for each service, more rows wait for others; with fewer, more services have to start. */
const rowsOfService = 90;

/**
 * Runs rows of the table against services, one or more for each configuration that they need.
 *
 * @param start Starts a service with AIRLOCK_ variables and an empty store.
 */
export function testContract(
  start: (vars: Record<string, string>) => Promise<Service>,
  table: Row[],
): void {
  for (const name of Object.keys(servers) as ServerName[]) {
    const rows = table.filter(({ server = "open" }) => server === name);
    for (let from = 0; from < rows.length; from += rowsOfService) {
      // Services run in parallel. The rows of one service share its store, so they run one after the other.
      describe(`a service ${name}`, { concurrent: true }, () => {
        let service: Service;
        beforeAll(async () => {
          service = await start(servers[name]);
        });
        afterAll(() => service.close());

        // oxlint-disable-next-line vitest/expect-expect -- every row has its own
        test.each(rows.slice(from, from + rowsOfService))(
          "$rule",
          { concurrent: false },
          async ({ check }) => {
            const api = new Api(service.url, service.databaseUrl);
            try {
              await check(api);
            } finally {
              await api.tidy();
            }
          },
        );
      });
    }
  }
}
