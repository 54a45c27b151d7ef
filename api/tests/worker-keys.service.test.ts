import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, expect, test } from "vitest";
import { NewApiKey } from "../../shared/wire/client/keys.ts";
import { SubmittedJob } from "../../shared/wire/client/submission.ts";
import { Api, body } from "../testing/contract/api.ts";
import { operatorKey, servers } from "../testing/contract/servers.ts";
import { Follower } from "../testing/follower.ts";
import { startIsolates } from "../testing/start-isolates.ts";

const operator = { "X-API-Key": operatorKey };

const isolates = await startIsolates(servers["with keys"]);
afterAll(() => isolates.close());

test("a key that one isolate revokes is refused by the others, which knew it, and its stream there ends", async () => {
  const [first, second, alone] = ["first", "second", "alone"].map(
    (name) => new Api(`${isolates.url}/${name}`),
  ) as [Api, Api, Api];
  const asked = { name: "a-key", scopes: ["run", "read"] };
  const { id, key } = NewApiKey.parse(body(await first.post("/keys", asked, operator)));
  const headers = { Authorization: `Bearer ${key}` };
  const statusAt = async (api: Api) => (await api.get("/usage", headers)).status;
  for (const api of [second, alone]) expect(await statusAt(api)).toBe(200);
  const submitted = await second.post("/execute/async", { code: "1" }, headers);
  const { job_id } = SubmittedJob.parse(body(submitted));
  const follower = await Follower.open(second.url, `/jobs/${job_id}/events`, headers);

  await first.post(`/keys/${id}/revoke`, undefined, operator);
  for (const api of [second, alone]) {
    while ((await statusAt(api)) !== 401) await sleep(100);
  }
  await follower.rest();
  expect(follower.seen.map(({ event }) => event)).not.toContain("end");
  await first.tidy();
});
