import { expect } from "vitest";
import type { Api } from "./api.ts";
import { each, type Row } from "./row.ts";

/** The path of an artifact of ten bytes, "0123456789". */
async function tenBytes(api: Api): Promise<string> {
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  expect((await agent.upload(lease_id, "digits.bin", "0123456789")).status).toBe(200);
  await agent.result(lease_id);
  return `/jobs/${job_id}/artifacts/digits.bin`;
}

export const rangeRows: Row[] = [
  ...each(
    [
      ["bytes=2-4", "234", "bytes 2-4/10"],
      ["bytes=7-", "789", "bytes 7-9/10"],
      ["bytes=-2", "89", "bytes 8-9/10"],
      ["bytes=5-99", "56789", "bytes 5-9/10"],
    ] as const,
    ([range]) => `Range ${range} of an artifact is 206 with that part alone`,
    async (api, [range, part, contentRange]) => {
      const reply = await api.get(await tenBytes(api), { Range: range });
      expect([reply.status, reply.text]).toEqual([206, part]);
      expect(Object.fromEntries(reply.headers)).toMatchObject({
        "content-range": contentRange,
        "content-length": String(part.length),
        "accept-ranges": "bytes",
      });
    },
  ),
  {
    rule: "A Range beyond the end of an artifact is 416 and gives its size",
    async check(api) {
      const reply = await api.get(await tenBytes(api), { Range: "bytes=10-" });
      expect(reply.status).toBe(416);
      expect(reply.headers.get("Content-Range")).toBe("bytes */10");
    },
  },
  {
    rule: "Several ranges, a malformed range or a range for another ETag give the whole artifact",
    async check(api) {
      const path = await tenBytes(api);
      const etag = (await api.get(path)).headers.get("ETag") ?? "";
      for (const headers of [
        { Range: "bytes=0-1,3-4" },
        { Range: "bytes=x" },
        { Range: "bytes=0-1", "If-Range": '"other"' },
      ]) {
        const reply = await api.get(path, headers);
        expect([reply.status, reply.text]).toEqual([200, "0123456789"]);
      }
      const same = await api.get(path, { Range: "bytes=0-1", "If-Range": etag });
      expect([same.status, same.text]).toEqual([206, "01"]);
    },
  },
  {
    rule: "Range serves parts of _code.py too",
    async check(api) {
      const { job_id } = await api.submit({ code: "print(12345)" });
      const reply = await api.get(`/jobs/${job_id}/artifacts/_code.py`, { Range: "bytes=6-10" });
      expect([reply.status, reply.text]).toEqual([206, "12345"]);
    },
  },
];
