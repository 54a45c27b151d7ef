import { useTestService } from "../../../scripts/testing/use-test-service.ts";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { key, pythonClient } from "../../testing/python-client.ts";
import { toolRows } from "./testing/tool-rows.ts";

needsThroughout("python3");
useTestService({ key });
toolRows(pythonClient());
