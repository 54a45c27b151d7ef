import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { toolRows } from "./testing/tool-rows.ts";

needsThroughout("python3");
toolRows(pythonClient());
