import { expect, test } from "vitest";
import { service } from "../../../../scripts/testing/use-test-service.ts";
import { examplesOf } from "../../../testing/examples-of.ts";
import { key, type PythonClient } from "../../../testing/python-client.ts";

/** Functions of the program that code calls, on the real engine. */
export function toolRows(python: PythonClient): void {
  test("the example of the guide prints what it says: a model calls three tools in one program", async () => {
    const guide = "docs/guides/tools.md";
    const { program, prints } = examplesOf(guide, "python", { url: service.url, key });
    expect(prints).toHaveLength(2);
    expect(await python.print(program)).toBe(`${prints.join("\n")}\n`);
  });

  test("a function's name, docstring and parameters are those in the code", async () => {
    const program = `
from typing import Dict, List, Literal, Optional
def search(text: str, limit: int = 10, *, kinds: Optional[List[str]] = None, order: Literal["up", "down"] = "up",
        where: Dict[str, int] = {}, exact: bool = False, weight: float = 1.0, other=None, **more):
    """Searches.

    In all documents.
    """
def first(a, /): pass
async def wait(n: "int"): pass
from airlock.tools import describe
class Odd:
    def __call__(self): pass
def problem(tool):
    try: describe(tool)
    except TypeError as error: return str(error)[-40:]
client = airlock.connect(sys.argv[1], sys.argv[2])
code = """
import inspect
print(inspect.signature(search), inspect.signature(wait), inspect.iscoroutinefunction(wait))
print(search.__doc__)
"""
record = client.run(code, tools=[search, wait])
print(json.dumps([describe(search), problem(first), problem(Odd()), record.stdout, record.tools[1]]))`;
    const [described, positional, nameless, stdout, told] = await python.run<unknown[]>(
      program,
      service.url,
      key,
    );
    expect(described).toEqual({
      name: "search",
      description: "Searches.\n\nIn all documents.",
      parameters: {
        type: "object",
        properties: {
          text: { type: "string" },
          limit: { type: "integer" },
          kinds: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }] },
          order: { enum: ["up", "down"] },
          where: { type: "object" },
          exact: { type: "boolean" },
          weight: { type: "number" },
          other: {},
        },
        required: ["text"],
        additionalProperties: true,
      },
    });
    expect(positional).toContain("can be given by name");
    expect(nameless).toContain("has no name");
    const optional = ["limit", "kinds", "order", "where", "exact", "weight", "other"];
    const signature = ["text", ...optional.map((one) => `${one}=Ellipsis`), "**others"].join(", ");
    expect(stdout).toBe(`(${signature}) (n) True\nSearches.\n\nIn all documents.\n`);
    expect(told).toMatchObject({ name: "wait", awaitable: true });
  });

  test("run calls functions in its own thread, and the code gets results and exceptions", async () => {
    const program = `
threads = set()
def price(item: str) -> int:
    threads.add(threading.get_ident() == threading.main_thread().ident)
    return {"tea": 380}[item]
def whole(): return 1.0, 2 ** 70, None
def unfit(): return object()
def large(): return "x" * 2_000_000
client = airlock.connect(sys.argv[1], sys.argv[2])
code = """
print(price("tea") + price(item="tea"), whole())
for failing in (lambda: price("gold"), unfit, large):
    try: failing()
    except ToolError as error: print(error)
"""
parts = []
record = client.run(code, tools=[price, whole, unfit, large], on_stdout=parts.append)
print(json.dumps([record.status, record.stdout, "".join(parts) == record.stdout, list(threads)]))`;
    const told = await python.run(program, service.url, key);
    const prints = [
      "760 [1.0, 1180591620717411303424, None]",
      "KeyError: 'gold'",
      "The result is no JSON: Object of type object is not JSON serializable",
      "The result is larger than an answer may be.",
    ];
    expect(told).toEqual(["succeeded", `${prints.join("\n")}\n`, true, [true]]);
  });

  test("an async run answers all calls that wait at once", async () => {
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    together = asyncio.Event()
    waiting = []
    async def meet(n: int):
        waiting.append(n)
        if len(waiting) == 10: together.set()
        await together.wait()
        return n
    def plain(): return threading.current_thread() is threading.main_thread()
    code = """
import asyncio
print(sum(await asyncio.gather(*[meet(n) for n in range(10)])), plain())
"""
    record = await client.run(code, tools=[meet, plain])
    job = await client.submit("print(plain())", tools=[plain])
    again = await client.wait(job.job_id, tools=[plain])
    print(json.dumps([record.stdout, again.stdout]))
asyncio.run(main())`;
    expect(await python.run(program, service.url, key)).toEqual(["45 False\n", "False\n"]);
  });

  test("values that the code shows come as it shows them, also for asyncio", async () => {
    const program = `
code = "display(1)\\nprint(seen())\\n2"
def told(items): return [[item.data["text/plain"], item.main] for item in items]
shown = []
def seen(): return len(shown)
record = airlock.connect(sys.argv[1], sys.argv[2]).run(code, tools=[seen], on_result=shown.append)
async def main():
    items = []
    async def note(item): items.append(item)
    async def seen(): return len(items)
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    record = await client.run("display(1)\\nprint(await seen())\\n2", tools=[seen], on_result=note)
    return record.stdout, told(items)
print(json.dumps([[record.stdout, told(shown)], asyncio.run(main())]))`;
    const expected = [
      "1\n",
      [
        ["1", false],
        ["2", true],
      ],
    ];
    expect(await python.run(program, service.url, key)).toEqual([expected, expected]);
  });

  test("an interrupt inside a function cancels the job", async () => {
    const program = `
def stop(): raise KeyboardInterrupt
client = airlock.connect(sys.argv[1], sys.argv[2])
try: client.run("stop()", tools=[stop], metadata={"test": "stop"})
except KeyboardInterrupt: pass
record = next(client.list(metadata={"test": "stop"}))
print(json.dumps(client.wait(record.execution_id).status))`;
    expect(await python.run(program, service.url, key)).toBe("cancelled");
  });

  test("another client that takes over gets the calls that wait, and none that has its answer", async () => {
    const program = `
client = airlock.connect(sys.argv[1], sys.argv[2])
def one(): return 1
def two(): return 2
job = client.submit("print(one(), two())", tools=[one, two]).job_id
for event in client.stream(job):
    if event.event == "tool_call" and event.data.name == "one":
        client.request("POST", f"/jobs/{job}/tool-calls/{event.data.number}", body={"result": 10})
    elif event.event == "tool_call":
        break
called = []
def one(): called.append(1)
def two(): called.append(2); return 20
record = client.wait(job, tools=[one, two])
print(json.dumps([record.stdout, called]))`;
    expect(await python.run(program, service.url, key)).toEqual(["10 20\n", [2]]);
  });
}
