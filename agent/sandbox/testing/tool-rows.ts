import { expect, test } from "vitest";
import { classify } from "../output/classify.ts";
import { answering, tools } from "./answer-calls.ts";
import type { Python } from "./find-python.ts";
import { runOnHost } from "./host-run.ts";
import { programs } from "./programs/tools.ts";

/** Rows: functions of the caller, as the code finds them. */
export function toolRows(python: () => Python): void {
  test.concurrent.each(programs)("a tool: %s", async (_what, code, out, rest) => {
    const { calls, onCall } = answering();
    const report = await runOnHost(code, {
      python: python(),
      results: true,
      tools,
      options: { onCall },
    });
    const { status, error } = classify(report);
    const told = { out: report.out, err: report.err, end: `${status} ${error?.type ?? "-"}` };
    expect(told).toEqual({ out, err: "", end: "succeeded -", ...rest });
    expect(calls.map(({ number }) => number)).toEqual(calls.map((_, n) => n + 1));
  });
}
