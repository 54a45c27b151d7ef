import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { webhookRows } from "./testing/webhook-rows.ts";

needsThroughout("python3");
webhookRows(pythonClient());
