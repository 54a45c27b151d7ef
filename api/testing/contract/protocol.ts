import { expect } from "vitest";
import { PollReply } from "../../../shared/wire/lease.ts";
import { ownProtocol, protocolHeader, writeProtocol } from "../../../shared/wire/protocol.ts";
import type { ScriptedAgent } from "../scripted-agent.ts";
import { each, type Row } from "./row.ts";

/** A poll as agents of version 1.0 send it, who tell no version. */
const firstPoll = (id: string) => ({
  agent: { id, name: "old", version: "0.1.0", labels: {} },
  slots: 4,
  warm: 0,
  engine: { available: true, version: "20.10", runtimes: ["runc"] },
  breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
  leases: [],
  free_slots: 1,
  wait_s: 2,
});

/** What agents of version 1.0 know of a job and of its type; they refuse a type with more. */
const firstJob = [
  "attempt",
  "caps",
  "code",
  "correlation_id",
  "execution_id",
  "image",
  "input_json",
  "job_type",
  "key_id",
  "lease_id",
  "requirements",
  "startup_timeout_s",
  "timeout_s",
];
const firstJobType = [
  "base_image",
  "cpu_limit",
  "env",
  "gpus",
  "labels",
  "memory_limit",
  "name",
  "network",
  "preload",
  "requirements",
  "reuse",
  "timeout",
];

const pollAs = (agent: ScriptedAgent, version: string) =>
  agent.send("POST", "/poll", JSON.stringify({ ...firstPoll(agent.id), wait_s: 0 }), {
    [protocolHeader]: version,
  });

export const protocolRows: Row[] = [
  {
    rule: "An agent of the first protocol version is given jobs as it knows them",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const reply = await agent.send("POST", "/poll", JSON.stringify(firstPoll(agent.id)));
      expect(reply.status).toBe(200);
      expect(reply.headers.get(protocolHeader)).toBe("1.0");
      const raw = JSON.parse(reply.text) as { jobs: { job_type: object }[] };
      expect(PollReply.parse(raw).jobs.map((job) => job.execution_id)).toEqual([job_id]);
      expect(Object.keys(raw.jobs[0] ?? {}).sort()).toEqual(firstJob);
      expect(Object.keys(raw.jobs[0]?.job_type ?? {}).sort()).toEqual(firstJobType);
      const { lease_id } = PollReply.parse(raw).jobs[0]!;
      expect((await agent.result(lease_id)).status).toBe(200);
    },
  },
  ...each(
    [
      { told: "1.0", used: "1.0" },
      { told: writeProtocol(ownProtocol), used: writeProtocol(ownProtocol) },
      { told: "1.999", used: writeProtocol(ownProtocol) },
    ],
    ({ told }) => `An agent that speaks protocol ${told} is answered in what both speak`,
    async (api, { told, used }) => {
      const reply = await pollAs(api.agent(), told);
      expect(reply.status).toBe(200);
      expect(reply.headers.get(protocolHeader)).toBe(used);
    },
  ),
  ...each(
    [
      { told: "0.9", words: "update the agent" },
      { told: "2.0", words: "update the API" },
      { told: "latest", words: "must be a version such as" },
    ],
    ({ told }) => `An agent that speaks protocol ${told} is refused with words that say what to do`,
    async (api, { told, words }) => {
      const agent = api.agent();
      const reply = await pollAs(agent, told);
      expect(reply.status).toBe(400);
      expect((JSON.parse(reply.text) as { detail: string }).detail).toContain(words);
      expect(reply.headers.get(protocolHeader)).toBe(writeProtocol(ownProtocol));
      expect((await api.get("/pool/stats")).text).not.toContain(agent.id);
    },
  ),
  {
    rule: "A refusal of an agent names the protocol, so that it is not taken for a proxy's",
    async check(api) {
      const paths = ["/agent/v1/poll", "/agent/v1/rotate", "/agent/v1/join"];
      const headers = { Authorization: "Bearer unknown-token-0123456789" };
      for (const path of paths) {
        const reply = await api.post(path, {}, headers);
        expect(reply.status).toBeGreaterThanOrEqual(400);
        expect(reply.headers.get(protocolHeader)).not.toBeNull();
      }
    },
  },
  {
    rule: "Jobs that ask for GPUs go to agents with as many free, and say so while there is none",
    server: "with job types",
    async check(api) {
      const { job_id } = await api.submit({ job_type: "with-gpus" });
      const [few, many] = [api.agent(), api.agent()];
      expect((await few.poll({ gpus: { total: 1, free: 1 } })).jobs).toEqual([]);
      expect((await api.get(`/jobs/${job_id}`)).text).toContain("asks for 2 GPUs");
      expect((await many.poll({ gpus: { total: 2, free: 1 } })).jobs).toEqual([]);
      expect((await api.get(`/jobs/${job_id}`)).text).toContain("are in use");
      const { jobs } = await many.poll({ gpus: { total: 2, free: 2 } });
      expect(jobs.map((job) => job.execution_id)).toEqual([job_id]);
      await many.result(jobs[0]?.lease_id ?? "");
    },
  },
];
