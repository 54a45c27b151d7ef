import type { Command } from "commander";
import type { WebhookDelivery } from "../../../typescript/src/index.ts";
import { forEach } from "../for-each.ts";
import { addCommand, does, oneOf, tenantColumn, type Tool } from "../tool.ts";
import { age, moreThan, parseCount, parseNumber } from "../words.ts";

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
        const { airlock, terminal } = tool;
        const tenant = tenantColumn(tool);
        const { status, endpoint, job, number } = options;
        const page = await airlock.api.listWebhookDeliveries({
          ...(status !== undefined && { status: status as WebhookDelivery["status"] }),
          ...(endpoint !== undefined && { endpoint }),
          ...(job !== undefined && { jobId: job }),
          limit: parseCount(number),
        });
        if (terminal.json) return terminal.document(page.items);
        if (page.items.length === 0) return terminal.note("no deliveries");
        terminal.table(
          [
            { title: "ID" },
            { title: "STATUS", colored: true },
            { title: "TRIES", right: true },
            { title: "AGE", right: true },
            ...tenant.titles,
            { title: "RECEIVER" },
          ],
          page.items.map((one) => [
            String(one.id),
            one.status,
            String(one.attempts),
            age(one.created_at),
            ...tenant.cells(one),
            one.endpoint ?? one.callback_url ?? "",
          ]),
        );
        if (page.has_more) terminal.note(moreThan(number));
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
