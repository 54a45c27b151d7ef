import type { Command } from "commander";
import type { WebhookDelivery } from "../../../typescript/src/index.ts";
import { forEach } from "../for-each.ts";
import { showPage, tenantColumn } from "../list.ts";
import { addCommand, does, oneOf, type Tool } from "../tool.ts";
import { age, parseCount, parseNumber } from "../words.ts";

interface ListOptions {
  status?: string;
  endpoint?: string;
  job?: string;
  number: string;
}

const statuses = ["pending", "delivered", "failed"];

/** Commands about calls to receivers of webhooks. */
export function addWebhooks(program: Command): void {
  const webhooks = addCommand(program, "webhooks", "calls to those who want to know how jobs end");
  addCommand(webhooks, "deliveries", "list them, the newest first")
    .alias("ls")
    .addOption(oneOf("-s, --status <status>", "with one status", statuses))
    .option("--endpoint <name>", "to one receiver")
    .option("--job <id>", "about one job")
    .option("-n, --number <count>", "at most so many", "20")
    .action(
      does(async (tool: Tool, options: ListOptions) => {
        const { status, endpoint, job, number } = options;
        const page = await tool.airlock.api.listWebhookDeliveries({
          ...(status !== undefined && { status: status as WebhookDelivery["status"] }),
          ...(endpoint !== undefined && { endpoint }),
          ...(job !== undefined && { jobId: job }),
          limit: parseCount(number),
        });
        showPage(tool, page, number, "no deliveries", {
          ID: ({ id }) => String(id),
          STATUS: (one) => one.status,
          TRIES: ({ attempts }) => String(attempts),
          AGE: ({ created_at }) => age(created_at),
          ...tenantColumn(tool),
          RECEIVER: (one) => one.endpoint ?? one.callback_url ?? "",
        });
      }),
    );
  addCommand(webhooks, "resend", "deliver again")
    .argument("<delivery...>", "their ids")
    .action(
      does(async (tool: Tool, ids: string[]) => {
        for (const id of ids) parseNumber(id, "<delivery>");
        return forEach(
          tool,
          ids,
          (id) => tool.airlock.api.resendWebhookDelivery({ id: Number(id) }),
          ({ status }, id) => `${id} ${status}`,
        );
      }),
    );
}
