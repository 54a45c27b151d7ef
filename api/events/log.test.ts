import { expect, onTestFinished, test } from "vitest";
import { recordLog, recordResult, releaseLease } from "../agents/lease-posts.ts";
import { claimNext } from "../store/jobs/claim.ts";
import { findExecution } from "../store/jobs/read.ts";
import { success } from "../testing/scripted-agent.ts";
import { leasedJob, offers, openTempStore } from "../testing/temp-store.ts";
import { clientOf, testDeps } from "../testing/test-deps.ts";
import { readLog } from "./log.ts";

test("a log has the output of the last attempt: nothing between two attempts, at the end that of the result", async () => {
  const store = await openTempStore();
  onTestFinished(() => store.close());
  const deps = testDeps(store.db, store.folder, () => 10);
  const job = await leasedJob(store.db);
  const find = async () => (await findExecution(store.db, job.id))!;
  const read = async () => {
    const { size, open } = await readLog(clientOf(deps), await find(), "stdout");
    return [size, await new Response(open(0, size)).text()];
  };
  const write = async (text: string) => {
    const parts = [{ stream: "stdout" as const, offset: 0, data_base64: btoa(text) }];
    await recordLog(deps, await find(), { parts });
  };
  await write("first");
  expect(await read()).toEqual([5, "first"]);
  const error = { type: "docker_error", message: "", phase: "startup" } as const;
  await releaseLease(deps, job.leaseId!, { error, agent_stops: false });
  expect(await read()).toEqual([0, ""]);
  deps.now = () => 100_000;
  const terms = { agentId: "a", expiresAt: 200_000, now: 100_000 };
  const [again] = await claimNext(store.db, terms, { slots: 1, gpus: 0 }, offers);
  await write("second");
  expect(await read()).toEqual([6, "second"]);
  const result = { ...success, stdout_base64: btoa("second\n") };
  await recordResult(deps, again!, again!.leaseId!, result);
  expect(await read()).toEqual([7, "second\n"]);
});
