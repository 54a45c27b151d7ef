import { expect, test } from "vitest";
import { testEngine } from "./testing/engine.ts";
import { runCode } from "./testing/run-code.ts";

const place = await testEngine();

test.each([
  ["syntax_error", "def"],
  ["syntax_error", "if 1:\nprint(1)"],
  ["import_error", "import no_such_module"],
  ["type_error", "1 + 'a'"],
  ["value_error", "int('x')"],
  ["key_error", "{}['x']"],
  ["index_error", "[][0]"],
  ["attribute_error", "None.x"],
  ["name_error", "x"],
  ["assertion_error", "assert False"],
  ["division_error", "1 / 0"],
  ["overflow_error", "import math; math.exp(1000)"],
  ["encoding_error", "b'\\xff'.decode()"],
  ["json_error", "import json; json.loads('{')"],
  ["network_timeout", "raise TimeoutError"],
  ["runtime_error", "class E(Exception): pass\nraise E('x')"],
])("%s: %s", async (type, code) => {
  expect((await runCode(place, code)).end).toBe(`failed ${type} 1`);
});
