import { expect, test } from "vitest";
import { parseStartOptions, startHelp } from "./options.ts";

test("options become AIRLOCK_<KEY> variables", () => {
  const args = ["--host", "::1", "--port=9000", "--data-dir", "/d", "-v", "--max-workers", "2"];
  expect(parseStartOptions(args)).toEqual({
    help: false,
    env: {
      AIRLOCK_HOST: "::1",
      AIRLOCK_PORT: "9000",
      AIRLOCK_DATA_DIR: "/d",
      AIRLOCK_LOG_LEVEL: "debug",
      AIRLOCK_MAX_WORKERS: "2",
    },
  });
});

test("no option sets no variable", () => {
  expect(parseStartOptions([])).toEqual({ help: false, env: {} });
});

test("an unknown option is refused, with a way to the list", () => {
  expect(() => parseStartOptions(["--prot", "1"])).toThrow(/--prot[^]*npm start -- --help/);
});

test("the help names the options and the configuration keys", () => {
  expect(startHelp()).toContain("--data-dir");
  expect(startHelp()).toContain("AIRLOCK_<KEY>");
  expect(startHelp()).toMatch(/max_workers .*\[4\]/);
});
