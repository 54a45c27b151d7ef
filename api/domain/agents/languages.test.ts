import { expect, test } from "vitest";
import { loadConfig } from "../../../shared/config/config.ts";
import type { ImageLanguages } from "../../../shared/wire/agent/lease.ts";
import { environment } from "../environment.ts";
import { languagesThere, whyNoLanguage } from "./languages.ts";

const own = { cpp: { file: "main.cpp", run: ["mine"] } };
const config = loadConfig({ job_types: { native: { base_image: "n:1", languages: own } } }, {});
const native = environment(config, [], "native")!;
const agent = (languages?: ImageLanguages) => ({
  accepts: { job_types: null, builds: true, ...(languages && { languages }) },
});

test("a type has all languages until an agent has looked into its image, then those that are there and its own", () => {
  const before = languagesThere(native, [agent(), agent({ "other:1": { bash: "5" } })]);
  expect(before).toContainEqual({ name: "go", version: null });
  const agents = [agent({ "n:1": { perl: "5.40.1" } }), agent({ "n:1": { bash: "5.2.37" } })];
  expect(languagesThere(native, agents)).toEqual([
    { name: "bash", version: "5.2.37" },
    { name: "cpp", version: null },
    { name: "perl", version: "5.40.1" },
  ]);
  expect(whyNoLanguage(native, agents, "bash")).toBeUndefined();
  expect(whyNoLanguage(native, agents, "go")?.known).toBe("python, bash, cpp, perl");
});
