import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { breakRows } from "./testing/break-rows.ts";

needsThroughout("python3");
breakRows(pythonClient());
