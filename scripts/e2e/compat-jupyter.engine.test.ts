import { expect, test } from "vitest";
import { service, useTestService } from "../testing/use-test-service.ts";

const key = "key-0123456789abcdef";

useTestService({ key, api: { AIRLOCK_COMPAT: "sandbox-fusion", AIRLOCK_COMPAT_KEY: key } });

async function runJupyter(asked: object): Promise<{ status: number; json: unknown }> {
  const url = `${service.url}/compat/sandbox-fusion/run_jupyter`;
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(asked) });
  return { status: answer.status, json: await answer.json() };
}

test("cells of a notebook run in one interpreter, go on after an error, and leave no session", async () => {
  const cells = [
    "x = int(open('in/n.txt').read())\nprint('read')",
    "1 / 0",
    "open('out.txt', 'w').write('made')\nx * 7",
  ];
  const files = { "in/n.txt": btoa("6") };
  const asked = {
    cells,
    files,
    fetch_files: ["out.txt", "nothing"],
    total_timeout: 60,
    cell_timeout: 0,
  };
  const cell = (fields: object) => ({
    stdout: "",
    stderr: "",
    display: [],
    error: [],
    ...fields,
  });
  expect(await runJupyter(asked)).toEqual({
    status: 200,
    json: {
      status: "Success",
      message: "",
      driver: {
        status: "Finished",
        execution_time: null,
        return_code: 0,
        stdout: "",
        stderr: "",
      },
      executor_pod_name: null,
      cells: [
        cell({ stdout: "read\n" }),
        cell({
          stderr: expect.stringContaining("1 / 0") as string,
          error: [
            {
              ename: "ZeroDivisionError",
              evalue: "division by zero",
              traceback: [expect.stringContaining("Traceback") as string],
            },
          ],
        }),
        cell({ display: [{ "text/plain": "42" }] }),
      ],
      files: { "out.txt": btoa("made") },
    },
  });
  const late = { cells: ["while True: pass"], total_timeout: 1.5 };
  expect(await runJupyter(late)).toMatchObject({
    status: 200,
    json: { status: "Failed", driver: { status: "TimeLimitExceeded" }, cells: [] },
  });
  const headers = { Authorization: `Bearer ${key}` };
  const left = await fetch(`${service.url}/sessions?status=ready`, { headers });
  expect(await left.json()).toMatchObject({ count: 0 });
});
