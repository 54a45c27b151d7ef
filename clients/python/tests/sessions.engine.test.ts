import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { sessionRows } from "./testing/session-rows.ts";

needsThroughout("python3");
sessionRows(pythonClient());
