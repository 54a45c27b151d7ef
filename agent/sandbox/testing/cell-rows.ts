import { expect, test } from "vitest";
import { classify } from "../output/classify.ts";
import type { DisplayItem } from "../job.ts";
import type { Python } from "./find-python.ts";
import { runOnHost } from "./host-run.ts";
import { byTurns, errors, values } from "./programs/cells.ts";

/** Rows: what cells show, and how they end. */
export function cellRows(python: () => Python): void {
  test.concurrent.each([...values, ...errors])("a cell: %s", async (_what, code, shown, rest) => {
    const report = await runOnHost(code, { python: python(), results: true });
    const { status, error, exitCode } = classify(report);
    const { items, out, err } = report;
    expect({
      shown: items.map(shortly),
      out,
      err,
      end: `${status} ${error?.type ?? "-"} ${exitCode}`,
    }).toEqual({ shown, out: "", err: "", end: "succeeded - 0", ...rest });
    expect(items.map(({ number }) => number)).toEqual(shown.map((_, n) => n + 1));
    expect(report.itemsTruncated).toBe(false);
  });

  test("a cell: items say after which output they come", async () => {
    const { items } = await runOnHost(byTurns, { python: python(), results: true });
    const expected = items.map((_, n) => [(n * (n + 1)) / 2, 2 * n]);
    expect(items.map(({ stdoutAt, stderrAt }) => [stdoutAt, stderrAt])).toEqual(expected);
    expect(items).toHaveLength(50);
  });
}

/** Its text, with a mark on the main result; a mock's text has its address. */
const shortly = ({ main, data }: DisplayItem): string =>
  `${main ? "= " : ""}${data["text/plain"]?.replace(/^<(MagicMock) .*/, "$1")}`;
