import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { createServer } from "node:tls";
import { expect, test } from "vitest";
import { makeAuthority, startProxy } from "../../agent/testing/tls-world.ts";
import { startIdleProxy } from "../testing/cutting-proxy.ts";
import { startTestService } from "../testing/test-service.ts";
import { shortLeases } from "./short-leases.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const folder = tempFolder();

/** The API over TLS, as a proxy or load balancer in front of it would have it. */
async function startTls(apiUrl: string, tls: { key: Buffer; cert: Buffer }) {
  const server = createServer(tls, (client) => {
    const api = connect(Number(new URL(apiUrl).port), "127.0.0.1");
    for (const end of [client, api]) {
      end.on("error", () => {}).on("close", () => void (client.destroy(), api.destroy()));
    }
    client.pipe(api).pipe(client);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: (server.address() as AddressInfo).port, close: () => void server.close() };
}

test("behind a proxy that cuts idle tunnels, polls are sent again, no lease is lost and no job waits forever", async () => {
  await using service = await startTestService({
    api: { ...shortLeases, AIRLOCK_POLL_WAIT_S: "20" },
  });
  const authority = makeAuthority(folder, "ours");
  const tls = await startTls(service.url, authority.sign("DNS:localhost"));
  // A poll waits for four seconds here, as long as its lease lets it.
  const proxy = await startProxy(undefined, 1000);
  const agent = await service.startAgent("proxied", {
    AIRLOCK_API_URL: `https://localhost:${tls.port}`,
    AIRLOCK_API_CA_FILE: authority.file,
    HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`,
  });
  const ids: string[] = [];
  for (const cuts of [1, 3, 5]) {
    await waitUntil(`${cuts} tunnels are cut`, () => proxy.cuts() >= cuts);
    const id = await service.submit(
      "import time; time.sleep(3); open('a.txt', 'w').write('a'); print(1)",
    );
    expect(await service.ended(id)).toMatchObject({
      status: "succeeded",
      artifacts: [{ name: "a.txt" }],
    });
    ids.push(id);
  }
  const books = ids.map((id) => ({ id, ends: ["succeeded"], stdout: "1\n" }));
  expect(await service.ledger(books)).toMatchObject({ retried: 0, faults: [] });
  expect(agent.process.exitCode).toBeNull();
  proxy.close();
  tls.close();
});

test("a proxy that closes a connection after 20 s without a byte cuts no code that runs for longer", async () => {
  const compat = { AIRLOCK_COMPAT: "dify,sandbox-fusion" };
  await using service = await startTestService({ api: compat });
  await service.startAgent("runs");
  await using proxy = await startIdleProxy(service.url, 20_000);
  const code = "import time; time.sleep(26); print('done')";
  const post = async (path: string, body: object): Promise<unknown> => {
    const headers = { "Content-Type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return (await fetch(proxy.url + path, init)).json();
  };
  expect(
    await Promise.all([
      post("/execute", { code, timeout: 60 }),
      post("/compat/dify/v1/sandbox/run", { code, language: "python3" }),
      post("/compat/sandbox-fusion/run_code", { code, language: "python", run_timeout: 60 }),
    ]),
  ).toMatchObject([
    { success: true, stdout: "done\n" },
    { code: 0, data: { stdout: "done\n" } },
    { status: "Success", run_result: { stdout: "done\n" } },
  ]);
  expect(proxy.cuts()).toBe(0);
});
