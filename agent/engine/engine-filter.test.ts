import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { containerProfile } from "../container/container-profile.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { type Answer, fakeEngines } from "../testing/fake-engine.ts";

const { folder, fakeEngine } = fakeEngines();
const never = new AbortController().signal;
const profile = containerProfile(specWith());

/** Podman: it takes a profile for the name of a file, which it may be able to read. */
const podman =
  (canRead: boolean, filters: string[][]): Answer =>
  async (request, response) => {
    const { HostConfig } = JSON.parse(await text(request)) as typeof profile;
    filters.push(HostConfig.SecurityOpt.map((option) => option.slice(0, 9)));
    const file = HostConfig.SecurityOpt[1]?.slice("seccomp=".length);
    const isText = file?.startsWith("{");
    const refusal = `opening seccomp profile failed: ${isText ? "file name too long" : "no such file"}`;
    if (file && canRead && existsSync(file))
      expect(readFileSync(file, "utf8")).toContain("defaultAction");
    const isRefused = file !== undefined && (isText || !canRead || !existsSync(file));
    response.writeHead(isRefused ? 500 : 201, { "content-type": "application/json" });
    response.end(JSON.stringify(isRefused ? { message: refusal } : { Id: "abc" }));
  };
const [asText, asFile, own] = [
  ["no-new-pr", "seccomp={"],
  ["no-new-pr", "seccomp=/"],
  ["no-new-pr"],
];

test.each([
  ["gets it as a file", true, folder, [asText, asFile, asFile], 0],
  [
    "filters by its own where it cannot read that, with one warning",
    false,
    folder,
    [asText, asFile, own, own],
    1,
  ],
  [
    "filters by its own without such a file, with one warning",
    true,
    undefined,
    [asText, own, own],
    1,
  ],
])("an engine that takes no seccomp profile %s", async (_what, canRead, files, tried, warned) => {
  const filters: string[][] = [];
  const warnings: string[] = [];
  const warn = (message: string): unknown => warnings.push(message);
  const engine = await fakeEngine(podman(canRead, filters), warn, files);
  expect(await engine.create(profile, never)).toBe("abc");
  expect(await engine.create(profile, never)).toBe("abc");
  expect(filters).toEqual(tried);
  expect(warnings).toHaveLength(warned);
});

test("a filter whose file was removed is written again", async () => {
  const filters: string[][] = [];
  const warnings: string[] = [];
  const warn = (message: string): unknown => warnings.push(message);
  const engine = await fakeEngine(podman(true, filters), warn, folder);
  await engine.create(profile, never);
  rmSync(join(folder, "seccomp.json"));
  const both = [engine.create(profile, never), engine.create(profile, never)];
  expect(await Promise.all(both)).toEqual(["abc", "abc"]);
  for (const filter of filters.slice(1)) expect(filter).toEqual(asFile);
  expect(warnings).toEqual([]);
});
