import { createServer } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { listen } from "../../../shared/testing/listen.ts";
import { pythonClient } from "../../testing/python-client.ts";
import { operatorKey, startTenantService } from "../../testing/tenant-service.ts";

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

test("keys, limits, usage and the audit log have methods, and a met limit is an error with its figures", async () => {
  const api = await startTenantService();
  onTestFinished(() => api.close());
  const program = `
def told(work):
    try:
        return work()
    except airlock.ProblemError as error:
        return type(error).__name__
async def main():
    operator = airlock.connect_async(sys.argv[1], sys.argv[2])
    made = await operator.keys.create("ci", ["run", "read"], tenant="search", expires_in_s=3600)
    [listed] = await operator.keys.list()
    limits = await operator.tenants.set_limits("search", max_queued=1)
    client = airlock.connect(sys.argv[1], made.key, retries=0)
    job = client.submit("1")
    usage = client.usage()
    try:
        client.submit("1")
    except airlock.QuotaExceededError as error:
        met = [error.problem.quota, error.problem.limit, error.problem.used, error.retry_after_s]
    sync = airlock.connect(sys.argv[1], sys.argv[2])
    seen = [told(lambda: one.get(job.job_id).execution_id == job.job_id) for one in (
        sync, sync.with_options(tenant="search"), client)]
    [found] = sync.with_options(tenant="*").list()
    refused = told(lambda: client.keys.list())
    rotated = await operator.keys.rotate(made.id, old_valid_s=60)
    revoked = await operator.keys.revoke(made.id)
    entries = [one async for one in operator.audit(tenant="search", limit=3)]
    return [
        [listed.id == made.id == rotated.id, "key" in listed, listed.scopes, rotated.key != made.key],
        [limits.limits["max_queued"], (await operator.tenants.get("search")).usage.queued],
        [one.name for one in await operator.tenants.list()],
        [usage.tenant, usage.usage.queued, met],
        [seen, found.tenant, refused],
        [revoked.revoked_at is not None, [one.action for one in entries]],
    ]
print(json.dumps(asyncio.run(main())))`;
  expect(await python.run(program, api.url, operatorKey)).toEqual([
    [true, false, ["run", "read"], true],
    [1, 1],
    ["default", "search"],
    ["search", 1, ["max_queued", 1, 1, 5]],
    [["NotFoundError", true, true], "search", "ForbiddenError"],
    [true, ["key.revoke", "key.rotate", "tenant.limits"]],
  ]);
});
