import { createServer } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { startNode } from "../../../api/testing/start-node.ts";
import { needsThroughout } from "../../../scripts/testing/needs.ts";
import { listen } from "../../../shared/testing/http.ts";
import { pythonClient } from "../../testing/programs.ts";
import { webhookRows } from "../../testing/python-rows.ts";
import { operatorKey, startTenantService } from "../../testing/services.ts";

describe("mishaps", () => {
  const python = pythonClient();

  test("an answer that is not Airlock's is an error with a message", async () => {
    // It answers everything with a page, as a proxy's login does.
    const server = createServer((request, response) => {
      const status = request.url?.startsWith("/gone") ? 404 : 200;
      if (request.url?.startsWith("/moved"))
        response.writeHead(301, { location: "https://x.test/" });
      else response.writeHead(status, { "content-type": "text/html" });
      response.end("<html>\n<p>x</p>\n</html>\n");
    });
    await using login = await listen(server);
    const { url } = login;
    const program = `
def told(work):
    try:
        return work()
    except airlock.AirlockError as error:
        return "%s: %s" % (type(error).__name__, error)
url = sys.argv[1]
client = airlock.connect(url, retries=1)
print(json.dumps([
    told(lambda: client.run("1")),
    told(lambda: client.files.upload("a", b"1")),
    told(lambda: list(client.stream("1"))),
    told(lambda: airlock.connect(url + "/gone").run("1")),
    told(lambda: airlock.connect(url + "/moved").run("1")),
    told(lambda: airlock.connect(url.replace("http:", "https:"), retries=0).run("1")),
]))`;
    const foreign = `ConnectionError: ${url} did not answer as Airlock does: check the address, and what is between.`;
    expect(await python.run<string[]>(program, url)).toEqual([
      foreign,
      foreign,
      "ConnectionError: The answer has no events of Airlock: check the address.",
      "ProblemError: HTTP 404 without a problem of Airlock's: the address answered with a page: check it",
      `ConnectionError: ${url}/moved redirects to https://x.test/: connect to the address of Airlock itself.`,
      `ConnectionError: ${url.replace("http:", "https:")} could not be reached: it does not speak TLS; try http://`,
    ]);
  });

  test("a key that no header can carry is refused before it is sent, and not shown", async () => {
    const program = `
def told(key):
    try:
        airlock.connect("http://127.0.0.1:1", key)
    except airlock.AirlockError as error:
        return str(error)
print(json.dumps([told(key) for key in ("secret…", "secret\\n", "two words", "")]))`;
    const refusals = await python.run<string[]>(program);
    expect(new Set(refusals).size).toBe(1);
    expect(refusals[0]).toMatch(/^The API key is empty or has a character/);
  });

  test("a wait has its bound, also where the service is silent", async () => {
    await using silent = await listen(createServer(() => {}));
    const program = `
import time
client = airlock.connect(sys.argv[1])
ends = []
for options in ({}, {"on_stdout": print}):
    began = time.monotonic()
    try:
        client.wait("1", wait_s=1, **options)
    except airlock.NoAnswerError:
        ends.append(time.monotonic() - began < 30)
print(json.dumps(ends))`;
    expect(await python.run(program, silent.url)).toEqual([true, true]);
  });

  test("a wait may take longer than the time limit of an answer, and goes on while the service is full", async () => {
    let asked = 0;
    const busy = createServer((_, response) => {
      const full = { code: "unavailable", detail: "full", correlation_id: "c" };
      if (asked++ === 0) response.writeHead(503, { "retry-after": "0" }).end(JSON.stringify(full));
      else setTimeout(() => response.end(JSON.stringify({ status: "succeeded" })), 1_500);
    });
    const program = `
client = airlock.connect(sys.argv[1], retries=1, timeout=0.5)
print(json.dumps([client.wait("1", **given).status for given in ({}, {"wait_s": 100})]))`;
    await using service = await listen(busy);
    expect(await python.run(program, service.url)).toEqual(["succeeded", "succeeded"]);
  });

  test("an aborted run cancels its job, and ends soon even if the service does not answer", async () => {
    let tell = () => {};
    const waits = new Promise<void>((resolve) => (tell = resolve));
    let cancels = 0;
    const silent = createServer((request, response) => {
      if (request.url === "/execute/async") response.end(JSON.stringify({ job_id: "j" }));
      if (request.url === "/waiting") void waits.then(() => response.end("{}"));
      if (request.url?.startsWith("/jobs/j/result")) tell();
      if (request.url === "/jobs/j/cancel") cancels++;
    });
    const program = `
cancel = airlock.Cancel()
client = airlock.connect(sys.argv[1])
def abort():
    client.request("GET", "/waiting")
    cancel.cancel()
threading.Thread(target=abort).start()
try:
    client.with_options(cancel=cancel).run("1")
except airlock.Cancelled as error:
    print(json.dumps(error.job_id))`;
    await using service = await listen(silent);
    expect(await python.run(program, service.url)).toBe("j");
    expect(cancels).toBe(2);
  });

  test("an upload may take longer than the time limit of an answer", async () => {
    let size = 0;
    const slow = createServer((request, response) => {
      request.on("data", (part: Buffer) => {
        size += part.length;
        request.pause();
        setTimeout(() => request.resume(), 25);
      });
      request.on("end", () => response.end("{}"));
    });
    const program = `
client = airlock.connect(sys.argv[1], retries=0, timeout=5)
client.files.upload("a", bytes(int(sys.argv[2])))
print("1")`;
    const bytes = 20 * 1024 * 1024;
    await using service = await listen(slow);
    await python.run(program, service.url, String(bytes));
    expect(size).toBe(bytes);
  });

  test("requests go through the proxy of the environment, but not to this machine", async () => {
    const targets: string[] = [];
    const proxy = createServer((request, response) => {
      targets.push(`${request.url} ${request.headers["proxy-authorization"]}`);
      if (request.url?.startsWith("http://no.test")) response.writeHead(403);
      response.end(JSON.stringify({ status: "ok" }));
    });
    proxy.on("connect", ({ url: target, headers }, socket) => {
      targets.push(`${target} ${headers["proxy-authorization"]}`);
      socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
    });
    const program = `
import os
proxy = sys.argv[1]
os.environ["no_proxy"] = ""
def told(url, variable, proxy):
    os.environ[variable] = proxy
    try:
        return airlock.connect(url, retries=0, timeout=9).request("GET", "/a", {"b": True})
    except airlock.AirlockError as error:
        return str(error)
print(json.dumps([
    told("http://airlock.test:1/x", "http_proxy", proxy.replace("//", "//user:p%20w@")),
    told("https://airlock.test", "https_proxy", proxy),
    told("http://no.test", "http_proxy", proxy),
    told("http://127.0.0.1:1", "http_proxy", proxy),
    told("http://other.test", "no_proxy", "other.test"),
    told("http://airlock.test", "http_proxy", "socks5://127.0.0.1:1"),
]))`;
    await using way = await listen(proxy);
    const address = way.url;
    const basic = `Basic ${Buffer.from("user:p w").toString("base64")}`;
    expect(await python.run(program, address)).toEqual([
      { status: "ok" },
      expect.stringContaining(
        `could not be reached through the proxy ${address.slice(7)}: OSError`,
      ),
      expect.stringContaining(`HTTP 403 through the proxy ${address.slice(7)} without a problem`),
      expect.stringContaining("http://127.0.0.1:1 could not be reached: "),
      expect.stringContaining("http://other.test could not be reached: "),
      expect.stringContaining("a proxy of a kind that is not supported (socks5)"),
    ]);
    expect(targets).toEqual([
      `http://airlock.test:1/x/a?b=true ${basic}`,
      "airlock.test:443 undefined",
      "http://no.test/a?b=true undefined",
    ]);
  });

  test("what is surely a mistake is refused before it is sent", async () => {
    const program = `
from pathlib import Path
client = airlock.connect("http://127.0.0.1:1", retries=0)
def told(work):
    try:
        return work()
    except (airlock.AirlockError, TypeError) as error:
        return "%s: %s" % (type(error).__name__, error)
print(json.dumps([
    told(lambda: client.files.upload("d.csv", "/path")),
    told(lambda: client.files.upload("d.csv", open("/dev/null"))),
    told(lambda: client.wait(airlock.SubmittedJob(job_id="1"))),
    told(lambda: client.run("1", input_data={"a": float("nan")})),
    told(lambda: client.run(Path("a.py"))),
    told(lambda: client.batch("print(1)")),
    told(lambda: client.request("GET", "jobs/a b")),
    told(lambda: client.files.save("1", "/dev/null")),
    told(lambda: client.files.save("1", "/new/")),
    told(lambda: client.artifacts.get("1", "../../../health")),
    told(lambda: client.get("..")),
]))`;
    expect(await python.run(program)).toEqual([
      "TypeError: A str may be a path or a text: give Path(…) to upload the file there, or ….encode() to upload the text.",
      expect.stringMatching(
        /^TypeError: TextIOWrapper cannot be uploaded: give a Path, bytes, or /,
      ),
      "TypeError: An id is a str, such as job.job_id or record.execution_id, not SubmittedJob.",
      expect.stringMatching(
        /^AirlockError: The request cannot be sent as JSON: Out of range float/,
      ),
      "AirlockError: The request cannot be sent as JSON: Object of type PosixPath is not JSON serializable.",
      "TypeError: A batch is a list of jobs.",
      "AirlockError: 'jobs/a b' is not a path: a path begins with / and has no spaces.",
      "AirlockError: /dev/null is not a regular file: name the file to write.",
      "AirlockError: /new/ is not a regular file: name the file to write.",
      'AirlockError: ".." cannot be an id or a part of a name.',
      'AirlockError: ".." cannot be an id or a part of a name.',
    ]);
  });

  test("what is not an address is an error with a message", async () => {
    const program = `
def told(url):
    try:
        return airlock.connect(url).url
    except airlock.AirlockError as error:
        return "refused"
print(json.dumps([told(url) for url in ("foo", "http://h:abc", "http://[::1", "http://console")]))`;
    expect(await python.run(program)).toEqual(["refused", "refused", "refused", "http://console"]);
  });

  test("address and key come from the environment, and a page of the console stands for its service", async () => {
    const program = `
import os
os.environ.update(AIRLOCK_URL="http://airlock.test/console/jobs/1", AIRLOCK_KEY="k")
with airlock.connect() as client:
    print(json.dumps([client.url, client._transport.key, airlock.connect("http://other.test")._transport.key]))`;
    expect(await python.run(program)).toEqual(["http://airlock.test", "k", null]);
  });

  test("answers are dicts and objects, errors can be sent to other processes, keys can have any character", async () => {
    const api = await startNode();
    const program = `
import copy, pickle
client = airlock.connect(sys.argv[1])
batch = client.batch(["1", {"code": ""}], idempotency_key="b")
job = client.submit("pass", idempotency_key="k…", timeout=None)
def told(work):
    try:
        return work()
    except (airlock.AirlockError, AttributeError) as error:
        same = pickle.loads(pickle.dumps(error))
        return [type(same).__name__, str(same), getattr(same, "code", None), same.__dict__ == error.__dict__]
print(json.dumps([
    job.job_id == job["job_id"] == client.submit("pass", idempotency_key="k…").job_id,
    pickle.loads(pickle.dumps(job)) == copy.deepcopy(job) == json.loads(json.dumps(job)) == dict(job),
    [type(one).__name__ for one in batch.jobs],
    [client.get(job.job_id).metadata, batch.jobs[1].errors[0].path],
    batch.batch_id == client.batch(["1", {"code": ""}], idempotency_key="b").batch_id,
    "job_id" in dir(job),
    told(lambda: job.jobid),
    told(lambda: client.get("0")),
    told(lambda: airlock.connect("http://127.0.0.1:1", retries=0).get("0"))[::3],
    told(lambda: client.run("pass", wait_s=0).job_id)[:1],
    told(lambda: client.submit("pass", timout=1))[1],
]))`;
    expect(await python.run(program, api.url)).toEqual([
      true,
      true,
      ["SubmittedJob", "Problem"],
      [null, "code"],
      true,
      true,
      ["AttributeError", "SubmittedJob has no field 'jobid'.", null, true],
      ["NotFoundError", "Execution 0 does not exist.", "not_found", true],
      ["ConnectionError", true],
      ["WaitTimeoutError"],
      "The request is not valid: timout: is not a field of this request",
    ]);
    await api.close();
  });
});

describe("tenants", () => {
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
});

describe("public names", () => {
  const python = pythonClient();

  test("what programs import from airlock is there, beside the types and problems of the interface", async () => {
    const program = `
from types import ModuleType
generated = {*airlock.types.__all__, *airlock.problems.__all__}
print(json.dumps([
    sorted(name for name, value in vars(airlock).items()
        if not (name.startswith("_") or isinstance(value, ModuleType) or name in generated)),
    [name for name in generated if not hasattr(airlock, name)],
]))`;
    expect(await python.run(program)).toEqual([
      [
        "Airlock",
        "AirlockError",
        "AsyncAirlock",
        "AsyncOpenSession",
        "Cancel",
        "Cancelled",
        "ConnectionError",
        "JobEvent",
        "JobEventData",
        "NoAnswerError",
        "OpenSession",
        "ProblemError",
        "Record",
        "connect",
        "connect_async",
        "verify_webhook",
      ],
      [],
    ]);
  });

  test("every annotation of the interface's types names what Python knows", async () => {
    const program = `
import typing
classes = [value for value in vars(airlock.types).values() if isinstance(value, type)]
hints = [typing.get_type_hints(one) for one in classes if one.__module__ == "airlock.types"]
print(json.dumps(len(hints) > 50))`;
    expect(await python.run(program)).toBe(true);
  });

  test("the client for asyncio has each call of the other, with the same parameters and words", async () => {
    const program = `
import inspect
def calls_of(part):
    return {name: value for name, value in inspect.getmembers(part) if not name.startswith("_") and callable(value)}
def missing(own, other):
    found = []
    for name, call in calls_of(own).items():
        like = calls_of(other).get(name)
        if like is None or inspect.signature(like).parameters.keys() != inspect.signature(call).parameters.keys():
            found.append(name)
        elif not inspect.getdoc(like):
            found.append(name + " has no words")
    return found
client, other = airlock.connect("http://127.0.0.1:1"), airlock.connect_async("http://127.0.0.1:1")
session, like = client.sessions.attach("a"), other.sessions.attach("a")
parts = ["files", "artifacts", "sessions", "batches", "dead_letters", "keys", "tenants"]
print(json.dumps({
    "client": missing(client, other),
    "session": missing(session, like),
    **{part: missing(getattr(client, part), getattr(other, part)) for part in parts},
    **{"session's " + part: missing(getattr(session, part), getattr(like, part)) for part in ["files", "contexts"]},
}))`;
    const found = await python.run<Record<string, string[]>>(program);
    expect(Object.keys(found)).toHaveLength(11);
    // Only the sync one has the option `cancel`: a task is cancelled by itself.
    expect(Object.values(found).flat()).toEqual(["with_options"]);
  });
});

needsThroughout("python3");
webhookRows(pythonClient());
