import { createServer } from "node:http";
import { expect, test } from "vitest";
import { listen } from "../../../shared/testing/listen.ts";
import { pythonClient } from "../../testing/python-client.ts";

const python = pythonClient();

test("a tenant goes with every request, and what is no tenant's name is refused before it is sent", async () => {
  const tenants: unknown[] = [];
  await using told = await listen(
    createServer((request, response) => {
      tenants.push(request.headers["x-airlock-tenant"]);
      response.writeHead(200, { "Content-Length": "2" }).end("{}");
    }),
  );
  const program = `
client = airlock.connect(sys.argv[1], tenant="search")
client.get("1")
client.with_options(tenant="*").get("1")
client.with_options(retries=0).get("1")
asyncio.run(airlock.connect_async(sys.argv[1], tenant="maps").get("1"))
airlock.connect(sys.argv[1]).get("1")
def refused(tenant):
    try:
        client.with_options(tenant=tenant)
    except airlock.AirlockError as error:
        return str(error)
print(json.dumps([refused(tenant) for tenant in ("", "Search", "*a", "ü")]))`;
  const refusals = await python.run<string[]>(program, told.url);
  expect(refusals[1]).toBe(
    "'Search' is not the name of a tenant: it has a to z, 0 to 9 and -, or is * for all.",
  );
  expect(refusals).not.toContain(null);
  expect(tenants).toEqual(["search", "*", "search", "maps", undefined]);
});
