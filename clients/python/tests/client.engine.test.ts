import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { useTestService } from "../../../scripts/testing/test-service.ts";
import { key, pythonClient } from "../../testing/programs.ts";
import { jobRows, sessionRows, toolRows } from "../../testing/python-rows.ts";

needsThroughout("python3");
useTestService({ key });
jobRows(pythonClient());

sessionRows(pythonClient());

toolRows(pythonClient());
