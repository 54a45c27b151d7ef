import { expect } from "vitest";
import { type Api, expectFault } from "./api.ts";
import { each, type Row } from "./row.ts";

const code = "print(1)";
const text = (name: string) => ({ name, text: "x" });

export const refusedFileRows: Row[] = [
  ...each(
    [
      { why: "data.json", files: [text("data.json")], path: "files.0.name" },
      { why: "in data.json", files: [text("data.json/a")], path: "files.0.name" },
      { why: "that begins with _", files: [text("_requirements.txt")], path: "files.0.name" },
      { why: "that leaves /input", files: [text("../code/main.py")], path: "files.0.name" },
      { why: "that is absolute", files: [text("/etc/passwd")], path: "files.0.name" },
      { why: "with an empty part", files: [text("a//b")], path: "files.0.name" },
      { why: "with NUL", files: [text("a\0")], path: "files.0.name" },
      { why: "with a line break", files: [text("a\nb")], path: "files.0.name" },
      { why: "with a mark of text direction", files: [text("a\u202egnp")], path: "files.0.name" },
      { why: "with half a character", files: [text("a\ud800")], path: "files.0.name" },
      { why: "without characters", files: [text("")], path: "files.0.name" },
      { why: "of 1,025 bytes", files: [text("a/".repeat(512) + "b")], path: "files.0.name" },
      { why: "with a part of 256 bytes", files: [text("a".repeat(256))], path: "files.0.name" },
      { why: "that another has", files: [text("a"), text("a")], path: "files.1.name" },
      { why: "in another file", files: [text("a"), text("a/b")], path: "files.1.name" },
      { why: "that is a folder", files: [text("a/b/c"), text("a/b")], path: "files.1.name" },
    ],
    ({ why }) => `A file of a request may not have a name ${why}`,
    refuse,
  ),
  ...each(
    [
      { why: "without content", files: [{ name: "a" }], path: "files.0" },
      { why: "with two", files: [{ ...text("a"), base64: "" }], path: "files.0" },
      { why: "that is not base64", files: [{ name: "a", base64: "!" }], path: "files.0.base64" },
      { why: "with a wrong id", files: [{ name: "a", file_id: "x" }], path: "files.0.file_id" },
      { why: "with an unknown field", files: [{ ...text("a"), mode: 1 }], path: "files.0.mode" },
      {
        why: "that was never uploaded",
        files: [text("a"), { name: "b", file_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10" }],
        path: "files.1.file_id",
      },
      {
        why: "that is an artifact of no job",
        files: [
          { name: "b", artifact: { job_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10", name: "x" } },
        ],
        path: "files.0.artifact",
      },
    ],
    ({ why }) => `A request is refused for a file ${why}`,
    refuse,
  ),
  {
    rule: "More than 100 files are 400",
    async check(api) {
      const many = Array.from({ length: 101 }, (_, n) => text(`f${n}`));
      await refuse(api, { files: many, path: "files" });
      expect((await api.submit({ files: many.slice(1) })).status).toBe("queued");
    },
  },
  {
    rule: "An artifact of a running job is not there yet",
    async check(api) {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      expect((await agent.upload(lease_id, "out", "x")).status).toBe(200);
      const files = [{ name: "in", artifact: { job_id, name: "out" } }];
      expectFault(await api.post("/execute/async", { code, files }), "files.0.artifact");
    },
  },
];

async function refuse(api: Api, { files, path }: { files: object[]; path: string }): Promise<void> {
  const stored = await api.newest();
  for (const where of ["/execute", "/execute/async"]) {
    expectFault(await api.post(where, { code, files }), path);
  }
  expect(await api.newest()).toEqual(stored);
}
