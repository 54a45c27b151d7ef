import { expect } from "vitest";
import { protocolHeader, protocolVersion } from "../../../shared/wire/agent/protocol.ts";
import { each, type Row } from "./row.ts";

export const protocolRows: Row[] = [
  {
    rule: "An agent that uses the API's protocol version, or sends none, gets an answer with the version",
    async check(api) {
      const agent = api.agent();
      const leave = JSON.stringify({ agent_id: agent.id, crashed: false });
      for (const headers of [{ [protocolHeader]: protocolVersion }, {}]) {
        const reply = await agent.send("POST", "/leave", leave, headers);
        expect(reply.status).toBe(200);
        expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
      }
    },
  },
  ...each(
    [{ told: "0" }, { told: "1" }, { told: "1.1" }, { told: "latest" }],
    ({ told }) => `An agent that speaks protocol ${told} is refused with words that say what to do`,
    async (api, { told }) => {
      const agent = api.agent();
      const poll = JSON.stringify(agent.pollRequest());
      const reply = await agent.send("POST", "/poll", poll, { [protocolHeader]: told });
      expect(reply.status).toBe(400);
      expect((JSON.parse(reply.text) as { detail: string }).detail).toBe(
        `The agent speaks version ${told} of the agents' protocol, the API version ${protocolVersion}: ` +
          "run the same version of Airlock on both.",
      );
      expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
      expect((await api.get("/pool/stats")).text).not.toContain(agent.id);
    },
  ),
  {
    rule: "A refusal to an agent has the protocol header, so that the agent knows it is not from a proxy",
    async check(api) {
      const paths = ["/agent/v1/poll", "/agent/v1/rotate", "/agent/v1/join"];
      const headers = { Authorization: "Bearer unknown-token-0123456789" };
      for (const path of paths) {
        const reply = await api.post(path, {}, headers);
        expect(reply.status).toBeGreaterThanOrEqual(400);
        expect(reply.headers.get(protocolHeader)).toBe(protocolVersion);
      }
    },
  },
  {
    rule: "Jobs that need GPUs go to agents with enough free ones; without such an agent the message says so",
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
