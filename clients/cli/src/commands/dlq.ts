import type { Command } from "commander";
import type { ExecutionErrorType } from "../../../typescript/src/index.ts";
import { forEach } from "../for-each.ts";
import { showPage, tenantColumn } from "../list.ts";
import { addCommand, does, type Tool } from "../tool.ts";
import { age, parseCount, parseNumber } from "../words.ts";

/** Commands about the dead letter queue. */
export function addDlq(program: Command): void {
  const dlq = addCommand(program, "dlq", "asynchronous jobs that failed");
  addCommand(dlq, "list", "list them, the newest first")
    .alias("ls")
    .option("--error-type <type>", "with one type of error")
    .option("-n, --number <count>", "at most so many", "20")
    .action(
      does(async (tool: Tool, options: { errorType?: string; number: string }) => {
        const { errorType, number } = options;
        const page = await tool.airlock.api.listDeadLetters({
          ...(errorType !== undefined && { errorType: errorType as ExecutionErrorType }),
          limit: parseCount(number),
        });
        showPage(tool, page, number, "no dead letters", {
          ID: ({ id }) => String(id),
          JOB: ({ job_id }) => job_id,
          AGE: ({ created_at }) => age(created_at),
          ...tenantColumn(tool),
          ERROR: ({ error_type, error_message }) => `${error_type}: ${error_message ?? ""}`,
        });
      }),
    );
  addCommand(dlq, "stats", "count them by type of error").action(
    does(async ({ airlock, terminal }: Tool) => {
      const stats = await airlock.api.getDeadLetterStats();
      if (terminal.json) return terminal.document(stats);
      terminal.table(
        [{ title: "COUNT", right: true }, { title: "ERROR TYPE" }],
        [
          ...Object.entries(stats.by_error_type).map(([type, count]) => [String(count), type]),
          [String(stats.total), "all"],
        ],
      );
    }),
  );
  addCommand(dlq, "rm", "remove entries")
    .argument("<dead-letter...>", "their ids")
    .action(
      does(async (tool: Tool, ids: string[]) => {
        for (const id of ids) parseNumber(id, "<dead-letter>");
        return forEach(
          tool,
          ids,
          (id) => tool.airlock.api.deleteDeadLetter({ id: Number(id) }),
          (_, id) => `${id} removed`,
        );
      }),
    );
}
