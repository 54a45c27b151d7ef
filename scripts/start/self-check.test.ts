import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { loadConfig } from "../../shared/config/config.ts";
import { OperatorError } from "../command/operator-error.ts";
import { selfCheck } from "./self-check.ts";

test("a first job that is not answered says so, and where to look", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const failure = await selfCheck(url, loadConfig({}, {}), 50).catch((error: unknown) => error);
  silent.closeAllConnections();
  silent.close();
  expect(failure).toBeInstanceOf(OperatorError);
  expect((failure as Error).message).toBe(
    "the self-check got no answer within 0.05 s.\nThe messages above say what it waits for; if this machine was only slow, run npm start again.",
  );
});
