import { expect, test } from "vitest";
import { pythonClient } from "../../testing/python-client.ts";

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
