import { expect, test } from "vitest";
import { readRuntimeSource } from "./runtime-source.ts";
import type { PipConfig } from "./source.ts";
import { pipConfig } from "../testing/pip-config.ts";

const read = async (config: Partial<PipConfig>) => {
  const { reach } = await readRuntimeSource(pipConfig(config));
  return reach;
};
const proxyUrl = "http://proxy.example:3128";

test.each<[string, Partial<PipConfig>, readonly string[]]>([
  ["nothing", {}, []],
  ["the index", { indexUrl: "https://a.example/simple" }, ["a.example:443"]],
  ["its port", { indexUrl: "http://127.0.0.1:3141/simple" }, ["127.0.0.1:3141"]],
  ["further hosts", { hosts: ["b.example:8081", "c"] }, ["b.example:8081", "c:80", "c:443"]],
  ["PyPI's hosts behind a proxy", { proxyUrl }, ["pypi.org:443", "files.pythonhosted.org:443"]],
  ["the index behind a proxy", { proxyUrl, indexUrl: "https://a.example" }, ["a.example:443"]],
  ["no index for files alone", { proxyUrl, findLinks: "/" }, []],
])("may be reached by name: %s", async (_what, config, hosts) => {
  expect(await read(config)).toMatchObject({ hosts });
});
