import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  answer,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../../../api/testing/receiver.ts";
import { type NodeProcess, startNode, startNodeIn } from "../../../api/testing/start-node.ts";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { commandFor } from "./testing/run-command.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let api: NodeProcess;
let receiver: Receiver;
beforeEach(async () => {
  [api, receiver] = await Promise.all([startNode(), startReceiver()]);
});
afterEach(async () => {
  await Promise.all([api.close(), receiver.close()]);
});

/** The command while it listens. `next` resolves with the next line of its answer. */
async function listen(to: string, args: string[] = ["--secret", receiverSecret]) {
  const { child } = commandFor(api.url).start(["listen", "--json", "--forward-to", to, ...args]);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done = false } = await lines.next();
    if (done) throw new Error("the command has ended");
    return JSON.parse(value!) as Record<string, unknown>;
  };
  const ready = await next();
  return {
    ready,
    next,
    async interrupt(): Promise<number | null> {
      child.kill("SIGINT");
      await once(child, "exit");
      return child.exitCode;
    },
  };
}

/** A job that ends: it is cancelled in the queue. */
async function end(url = api.url): Promise<string> {
  const headers = { "Content-Type": "application/json" };
  const init = { method: "POST", headers, body: JSON.stringify({ code: "1" }) };
  const { job_id } = (await (await fetch(`${url}/execute/async`, init)).json()) as {
    job_id: string;
  };
  await fetch(`${url}/jobs/${job_id}/cancel`, { method: "POST" });
  return job_id;
}

test("listen calls a receiver with each job that ends, signed so that the reference library accepts it, until Ctrl-C", async () => {
  const listening = await listen(`${receiver.url}/hook`);
  const ids = [await end(), await end()];
  // The receiver fails if a signature is not right.
  const calls = await receiver.calls(2);
  expect(new Set(calls.map(({ id }) => id))).toEqual(new Set(ids.map((id) => `evt_${id}`)));
  expect(calls.map(({ path }) => path)).toEqual(["/hook", "/hook"]);
  const told = [await listening.next(), await listening.next()];
  expect(new Set(told.map(({ job_id }) => job_id))).toEqual(new Set(ids));
  expect(told[0]).toMatchObject({ status: 204, type: "execution.cancelled", error: null });
  expect(await listening.interrupt()).toBe(130);
});

test("without --secret, listen makes a secret and prints it before the first call", async () => {
  receiver.answering = answer(204);
  const listening = await listen(receiver.url, []);
  expect(listening.ready["secret"]).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  await listening.interrupt();
});

test("listen calls again after a failure, and gives up after the third", async () => {
  receiver.answering = answer(500);
  const listening = await listen(receiver.url);
  const id = await end();
  const told = [await listening.next(), await listening.next(), await listening.next()];
  expect(told.map(({ again_in_ms }) => again_in_ms)).toEqual([1000, 5000, null]);
  expect(told[2]).toMatchObject({ status: 500, job_id: id });
  await receiver.close();
  await end();
  expect(await listening.next()).toMatchObject({ status: null, error: "nothing listens there" });
  await listening.interrupt();
  receiver = await startReceiver();
});

test("listen continues after a restart of the service, and misses nothing", async () => {
  const folder = tempFolder();
  const vars = { AIRLOCK_PORT: String(await reservePort()) };
  await api.close();
  api = await startNodeIn(folder, vars);
  const listening = await listen(receiver.url);
  const first = await end();
  expect(await listening.next()).toMatchObject({ job_id: first });
  await api.close();
  api = await startNodeIn(folder, vars);
  const second = await end();
  expect(await listening.next()).toMatchObject({ job_id: second });
  await listening.interrupt();
});

test("listen -e leaves out jobs that end with another status", async () => {
  const listening = await listen(receiver.url, ["--secret", receiverSecret, "-e", "failed"]);
  await end();
  const other = await listen(receiver.url);
  const id = await end();
  expect(await other.next()).toMatchObject({ job_id: id });
  expect(receiver.received.map((call) => call.id)).toEqual([`evt_${id}`]);
  await Promise.all([listening.interrupt(), other.interrupt()]);
});

test.each([
  [["--forward-to", "ftp://a"], "must be the address of a receiver"],
  [["--forward-to", "localhost:1", "--secret", "whsec_AAAA"], "--secret must be whsec_"],
  [["--forward-to", "localhost:1", "-e", "gone"], "must be one of succeeded"],
  [[], "required option '--forward-to <url>'"],
])("listen %s is a usage error", async (args, says) => {
  const { code, stderr } = await commandFor(api.url).run(["listen", ...args]);
  expect(code).toBe(2);
  expect(stderr).toContain(says);
});
