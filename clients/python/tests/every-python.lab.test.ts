import { describe, expect, test } from "vitest";
import {
  findPython,
  promisedPythons,
  startsHere,
} from "../../../agent/sandbox/testing/find-python.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { useTestService } from "../../../scripts/testing/use-test-service.ts";
import { key, pythonClient } from "../../testing/python-client.ts";
import { breakRows } from "./testing/break-rows.ts";
import { jobRows } from "./testing/job-rows.ts";
import { sessionRows } from "./testing/session-rows.ts";
import { toolRows } from "./testing/tool-rows.ts";
import { webhookRows } from "./testing/webhook-rows.ts";

for (const minor of promisedPythons) {
  describe(`Python ${minor}`, needs(`python${minor}`), () => {
    const python = pythonClient(() => startsHere(findPython(minor)!));
    test("the client runs under it", async () => {
      expect(await python.run("print(json.dumps(sys.version.split()[0]))")).toMatch(`${minor}.`);
    });
    useTestService({ key });
    breakRows(python);
    webhookRows(python);
    jobRows(python);
    sessionRows(python);
    toolRows(python);
  });
}
