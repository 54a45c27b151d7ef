import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { jobRows } from "./testing/job-rows.ts";

needsThroughout("python3");
jobRows(pythonClient());
