import { expect } from "vitest";
import { ImageSource } from "../../../shared/wire/agent/image.ts";
import { LeasedBuild } from "../../../shared/wire/agent/lease.ts";
import { type Reply, ScriptedAgent, sha256 } from "../scripted-agent.ts";
import { type Api, body, problemOf } from "./api.ts";
import { digest } from "./building.ts";
import { each, on } from "./row.ts";
import { agentTokens, maxImageBytes } from "./servers.ts";

const success = {
  status: "built",
  digest: digest(90),
  python_version: "3.13.5",
  manifest_digest: null,
} as const;
const missing = `/images/${digest(91)}`;

const archive = (seed: string): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(`an archive of ${seed} `.repeat(500));

async function put(
  agent: ScriptedAgent,
  leaseId: string,
  bytes: Uint8Array<ArrayBuffer>,
  hash?: string,
): Promise<Reply> {
  // A server that refuses a body without reading it may close the connection, so the connection is not reused.
  const headers = { "X-Airlock-SHA256": hash ?? (await sha256(bytes)), Connection: "close" };
  return agent.send("PUT", `/builds/${leaseId}/image`, bytes, headers);
}

/** A running build; `end` reports its result. */
async function building(api: Api, name: string) {
  const agent = api.agent();
  await agent.poll({ free_slots: 0 });
  const answer = api.post(`/job-types/${name}/build`);
  const lease: LeasedBuild = await agent.takeBuild();
  const end = async (made: { digest: string; manifest_digest?: string }) => {
    await agent.postBuild(lease.lease_id, "result", { ...success, ...made });
    expect((await answer).status).toBe(200);
  };
  return { agent, lease, answer, end };
}

export const imageRows = on("with job types", [
  {
    rule: "The image of a build reaches another agent byte for byte as it was uploaded",
    async check(api) {
      const { agent, lease, end } = await building(api, "image-0");
      expect(lease).toMatchObject({ share: "store", share_max_bytes: maxImageBytes });
      const bytes = archive(crypto.randomUUID());
      expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
      const other = api.agent(agentTokens[1]);
      const source = `/images/${digest(90)}`;
      expect((await other.get(source)).status).toBe(404);
      await end({ digest: digest(90) });
      const told = await other.get(source);
      expect(ImageSource.strict().parse(body(told))).toEqual({
        image: digest(90),
        job_type: "image-0",
        labels: {},
        registry_ref: null,
      });
      const got = await other.get(`${source}/archive`);
      expect(got.status).toBe(200);
      expect(got.headers.get("Content-Length")).toBe(String(bytes.length));
      expect(got.text).toBe(new TextDecoder().decode(bytes));
      const ETag = got.headers.get("ETag") ?? "";
      for (const [known, part] of [
        [ETag, bytes.subarray(100)],
        ['"another"', bytes],
      ] as const) {
        const asked = { Range: "bytes=100-", "If-Range": known };
        const rest = await other.send("GET", `${source}/archive`, undefined, asked);
        expect(rest.status).toBe(known === ETag ? 206 : 200);
        expect(rest.text).toBe(new TextDecoder().decode(part));
      }
      const { images_wanted } = await other.poll({ free_slots: 0 });
      expect(images_wanted).toContain(digest(90));
    },
  },
  {
    rule: "Uploading the same image again is 200 and a different one 409, also after the build has ended",
    async check(api) {
      const { agent, lease, end } = await building(api, "image-1");
      const bytes = archive("a");
      expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
      for (const finish of [async () => {}, () => end({ digest: digest(92) })]) {
        await finish();
        expect((await put(agent, lease.lease_id, bytes)).status).toBe(200);
        expect((await put(agent, lease.lease_id, archive("b"))).status).toBe(409);
      }
    },
  },
  {
    rule: "An image that differs from its headers is 400, an image that is too large 413, and nothing of it is stored",
    async check(api) {
      const { agent, lease, end } = await building(api, "image-2");
      const bytes = archive("c");
      const large = new Uint8Array(maxImageBytes + 1);
      for (const [content, hash, status] of [
        [bytes, "0".repeat(64), 400],
        [bytes, "none", 400],
        [large, undefined, 413],
      ] as const) {
        const reply = await put(agent, lease.lease_id, content, hash);
        expect({ hash, status: reply.status }).toEqual({ hash, status });
        expect(problemOf(reply).detail).not.toBe("");
      }
      const unmeasured = await fetch(`${api.url}/agent/v1/builds/${lease.lease_id}/image`, {
        method: "PUT",
        headers: {
          Authorization: `Bearer ${agentTokens[0]}`,
          "X-Airlock-SHA256": await sha256(bytes),
          Connection: "close",
        },
        body: new Blob([bytes]).stream(),
        duplex: "half",
      });
      expect(unmeasured.status).toBe(400);
      await end({ digest: digest(93) });
      expect((await agent.get(`/images/${digest(93)}`)).status).toBe(404);
      expect((await agent.get(`/images/${digest(93)}/archive`)).status).toBe(404);
      // Too late for it now.
      expect((await put(agent, lease.lease_id, bytes)).status).toBe(409);
    },
  },
  {
    rule: "An image for the lease of another token is 403, for an unknown lease 409",
    async check(api) {
      const { agent, lease, end } = await building(api, "image-3");
      const thief = api.agent(agentTokens[1]);
      await thief.poll({ free_slots: 0 });
      expect((await put(thief, lease.lease_id, archive("d"))).status).toBe(403);
      for (const id of [crypto.randomUUID(), "x", "%00"]) {
        expect((await put(agent, id, archive("d"))).status).toBe(409);
      }
      await end({ digest: digest(94) });
      expect((await agent.get(`/images/${digest(94)}`)).status).toBe(404);
    },
  },
  {
    rule: "The image of a released attempt is replaced by the image of the next attempt",
    async check(api) {
      const { agent, lease, answer } = await building(api, "image-5");
      expect((await put(agent, lease.lease_id, archive("f"))).status).toBe(200);
      const error = { type: "docker_error", message: "gone", phase: "startup" };
      await agent.postBuild(lease.lease_id, "release", { error });
      const other = api.agent();
      const second = await other.takeBuild();
      expect(second).toMatchObject({ job_type: "image-5", attempt: 2 });
      const bytes = archive("g");
      expect((await put(agent, lease.lease_id, archive("f"))).status).toBe(409);
      expect((await put(other, second.lease_id, bytes)).status).toBe(200);
      await other.postBuild(second.lease_id, "result", { ...success, digest: digest(97) });
      expect((await answer).status).toBe(200);
      const got = await agent.get(`/images/${digest(97)}/archive`);
      expect(got.text).toBe(new TextDecoder().decode(bytes));
    },
  },
  {
    rule: "An image in a registry is named by its digest there",
    async check(api) {
      const { agent, end } = await building(api, "image-4");
      await end({ digest: digest(95), manifest_digest: digest(96) });
      expect(body(await agent.get(`/images/${digest(95)}`))).toMatchObject({
        registry_ref: `registry.example/team-image-4@${digest(96)}`,
      });
      expect((await agent.get(`/images/${digest(95)}/archive`)).status).toBe(404);
    },
  },
  ...each(
    [missing, `${missing}/archive`, "/images/x", "/images/..%2F..%2Fetc/archive"],
    (path) => `GET /agent/v1${path.replaceAll("0", "")} of no image is 404`,
    async (api, path) => {
      const reply = await api.agent().get(path);
      expect(reply.status).toBe(404);
      expect(problemOf(reply).detail).not.toBe("");
    },
  ),
  {
    rule: "Without an agent's token, images can be neither fetched nor uploaded: 401",
    server: "with keys",
    async check(api) {
      for (const token of ["wrong-token-0123456789", "api-key-0-0123456789abcd"]) {
        const stranger = new ScriptedAgent(api.url, token);
        expect((await stranger.get(missing)).status).toBe(401);
        expect((await stranger.get(`${missing}/archive`)).status).toBe(401);
        expect((await put(stranger, crypto.randomUUID(), archive("e"))).status).toBe(401);
      }
    },
  },
]);
