import { createHash } from "node:crypto";
import { expect } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import { type Api, body } from "./api.ts";
import { each, type Row } from "./row.ts";

const numbers =
  '{"one":1.0,"big":12345678901234567890,"minus":-0,"small":1e-400,"huge":1E400,"list":[1.50,{"x":9007199254740993}]}';

async function submitText(api: Api, text: string): Promise<string> {
  const reply = await api.post("/execute/async", text);
  expect(reply.status).toBe(202);
  return (body(reply) as { job_id: string }).job_id;
}

/** The record's text after a run that wrote this to its streams and its result.json. */
async function recordAfter(api: Api, stdout: Uint8Array, output: string | null): Promise<string> {
  const { job_id } = await api.submit();
  const agent = api.agent();
  const { lease_id } = await agent.takeJob();
  const base64 = btoa(String.fromCharCode(...stdout));
  const reply = await agent.result(lease_id, {
    stdout_base64: base64,
    stderr_base64: base64,
    output_json: output,
  });
  expect(reply.status).toBe(200);
  return (await api.get(`/jobs/${job_id}/result`)).text;
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

export const exactnessRows: Row[] = [
  {
    rule: "Numbers of input_data reach the code as they were written",
    async check(api) {
      const id = await submitText(api, `{"code":"1","input_data":${numbers}}`);
      expect((await api.agent().takeJob()).input_json).toBe(numbers);
      expect((await api.get(`/jobs/${id}/artifacts/_input.json`)).text).toBe(numbers);
    },
  },
  {
    rule: "Numbers of result.json come back as they were written",
    async check(api) {
      const record = await recordAfter(api, bytes(""), numbers);
      expect(record).toContain(`"output":${numbers}`);
    },
  },
  {
    rule: "result.json can be downloaded, and given to other jobs, byte for byte",
    async check(api) {
      for (const text of [` ${numbers}\n`, '\u{feff}{"a": 1.0}']) {
        const { job_id } = await api.submit();
        const agent = api.agent();
        const path = `/jobs/${job_id}/artifacts/result.json`;
        expect((await api.get(path)).status).toBe(404);
        await agent.result((await agent.takeJob()).lease_id, { output_json: text });
        const hash = createHash("sha256").update(text).digest("hex");
        // Without the byte order mark, which its hash has.
        expect((await api.get(path)).text).toBe(text.replace("\u{feff}", ""));
        expect((await api.get(path)).headers.get("ETag")).toBe(`"${hash}"`);
        const artifact = { job_id, name: "result.json" };
        await api.submit({ files: [{ name: "before.json", artifact }] });
        const next = await agent.takeJob();
        expect(next.files).toMatchObject([{ name: "before.json", sha256: hash }]);
        await agent.result(next.lease_id);
        const record = await api.get(`/jobs/${job_id}/result`);
        expect(record.text).toContain(`"output":${text.replace("\u{feff}", "")}`);
      }
    },
  },
  {
    rule: "Keys like __proto__ are plain data in input and output",
    async check(api) {
      const keys = '{"__proto__":{"a":1},"constructor":{"prototype":null},"toString":1,"":2}';
      await submitText(api, `{"code":"1","input_data":${keys},"idempotency_key":"proto"}`);
      const again = await api.post(
        "/execute/async",
        '{"code":"1","input_data":{"constructor":{"prototype":null},"toString":1,"":2},"idempotency_key":"proto"}',
      );
      expect(again.status).toBe(409);
      const agent = api.agent();
      const { lease_id, input_json } = await agent.takeJob();
      expect(input_json).toBe(keys);
      await agent.result(lease_id);
      expect(await recordAfter(api, bytes(""), keys)).toContain(`"output":${keys}`);
    },
  },
  {
    rule: "A request with the field __proto__ is 400",
    async check(api) {
      const reply = await api.post("/execute/async", '{"code":"1","__proto__":{"timeout":1}}');
      expect(reply.status).toBe(400);
    },
  },
  {
    rule: "Code arrives as it was sent: CR LF, BOM, tabs, any language",
    async check(api) {
      const code = "\u{feff}# -*- coding: latin-1 -*-\r\nprint('é 日本 😀\t\u2028')\r\n";
      await api.submit({ code });
      expect((await api.agent().takeJob()).code).toBe(code);
    },
  },
  {
    rule: "Text of input_data arrives as it was sent: NUL, surrogates, any language",
    async check(api) {
      const input = '{"nul":"a\\u0000b","lone":"\\ud800","emoji":"😀","line":"\u2028"}';
      await submitText(api, `{"code":"1","input_data":${input}}`);
      const { input_json } = await api.agent().takeJob();
      expect(JSON.parse(input_json)).toEqual(JSON.parse(input));
    },
  },
  ...each<[string, Uint8Array, string]>(
    [
      ["NUL", bytes("a\0b\0"), "a\0b\0"],
      ["ANSI sequences", bytes("\u001b[31mred\u001b[0m\u0007"), "\u001b[31mred\u001b[0m\u0007"],
      ["invalid UTF-8", Uint8Array.from([0x61, 0xff, 0xc3, 0x28]), "a\u{fffd}\u{fffd}("],
      ["a lone surrogate", Uint8Array.from([0xed, 0xa0, 0x80]), "\u{fffd}\u{fffd}\u{fffd}"],
      ["a byte order mark", bytes("\u{feff}a"), "\u{feff}a"],
      ["CR LF", bytes("a\r\nb\r"), "a\r\nb\r"],
    ],
    ([what]) => `A stream may hold ${what}`,
    async (api, [, written, shown]) => {
      const record = JSON.parse(await recordAfter(api, written, null)) as Record<string, unknown>;
      expect([record["stdout"], record["stderr"]]).toEqual([shown, shown]);
    },
  ),
  ...each(
    [
      "{",
      "[1]",
      '"text"',
      "null",
      "1",
      '{"a":NaN}',
      `{"a":${"[".repeat(600)}${"]".repeat(600)}}`,
      `{"too many":[${"{},".repeat(limits.resultJsonMaxValues)}{}]}`,
    ],
    (output) => `A result whose output is ${output.slice(0, 20)} is refused, and the job goes on`,
    async (api, output) => {
      const { job_id } = await api.submit();
      const agent = api.agent();
      const { lease_id } = await agent.takeJob();
      expect((await agent.result(lease_id, { output_json: output })).status).toBe(400);
      expect((await api.job(job_id)).status).toBe("running");
      expect((await agent.result(lease_id)).status).toBe(200);
    },
  ),
];
