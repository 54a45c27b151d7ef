import { expect, test } from "vitest";
import { familiesText } from "./family.ts";

test("a family is its help, its type and a line for each sample", () => {
  const text = familiesText([
    { name: "a", type: "gauge", help: "One.", samples: [{ value: 1 }, { value: 0.5 }] },
    {
      name: "b",
      type: "histogram",
      help: "Two.",
      samples: [{ suffix: "_bucket", labels: { job_type: 'a"b\\c\nd', le: "+Inf" }, value: 3 }],
    },
  ]);
  expect(text).toBe(
    [
      "# HELP a One.",
      "# TYPE a gauge",
      "a 1",
      "a 0.5",
      "# HELP b Two.",
      "# TYPE b histogram",
      'b_bucket{job_type="a\\"b\\\\c\\nd",le="+Inf"} 3',
      "",
    ].join("\n"),
  );
});
