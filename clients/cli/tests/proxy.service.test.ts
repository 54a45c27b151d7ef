import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, expect, test } from "vitest";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { startNode } from "../../../api/testing/start-node.ts";
import { commandFor } from "./testing/run-command.ts";

const host = "airlock.invalid";
const api = await startNode({ AIRLOCK_ALLOWED_HOSTS: host });
const asked: string[] = [];
const proxy = createServer().on("connect", ({ url = "" }, client) => {
  asked.push(url);
  const service = connect(Number(new URL(api.url).port), "127.0.0.1", () => {
    client.write("HTTP/1.1 200 OK\r\n\r\n");
    client.pipe(service).pipe(client);
  });
  for (const one of [client, service]) one.on("error", () => {});
});
await once(proxy.listen(0, "127.0.0.1"), "listening");
const env = { HTTP_PROXY: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` };
afterAll(async () => {
  proxy.closeAllConnections();
  proxy.close();
  await api.close();
});

test("the command goes through the proxy of the environment, but not to this machine or to NO_PROXY", async () => {
  const far = commandFor(`http://${host}`);
  expect(await far.run(["ps"], { env })).toEqual({
    code: 0,
    stdout: "",
    stderr: "no executions\n",
  });
  expect(asked).toEqual([`${host}:80`]);
  expect(await commandFor(api.url).run(["ps"], { env })).toMatchObject({ code: 0 });
  const direct = await far.run(["ps"], { env: { ...env, NO_PROXY: ".invalid" } });
  expect(direct).toMatchObject({ code: 125, stdout: "" });
  expect(asked).toHaveLength(1);
});

test("if nothing listens at the proxy, the command names the proxy", async () => {
  const port = await reservePort();
  const { code, stderr } = await commandFor(`http://${host}`).run(["ps"], {
    env: { HTTP_PROXY: `127.0.0.1:${port}` },
  });
  expect(code).toBe(125);
  expect(stderr).toContain(`through the proxy 127.0.0.1:${port}: nothing listens there\n`);
});
