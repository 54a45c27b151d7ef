import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { version } from "../../api/version.ts";
import { Config } from "../../shared/config/config.ts";
import { readConfig } from "../../shared/process/files.node.ts";
import { clientDocument, generatedFiles } from "./clients.ts";
import {
  configurationFile,
  configurationText,
  describeType,
  exampleFile,
  fillSections,
  type JsonSchema,
} from "./configuration.ts";

describe("configuration", () => {
  const text = readFileSync(configurationFile, "utf8");

  test("docs/configuration.md is up to date with the schema (npm run docs writes it)", () => {
    expect(text).toBe(configurationText());
  });

  test("docs/configuration.md has every key with its variable, type, default and meaning", () => {
    expect(text).toContain(
      "| `port` | `AIRLOCK_PORT` | integer, 0 to 65535 | `8080` | Port the API listens on; 0 picks one. |",
    );
    for (const [key, schema] of Object.entries(Config.shape)) {
      expect(text).toContain(`| \`${key}\` | \`AIRLOCK_${key.toUpperCase()}\` |`);
      expect(text).toContain(schema.description?.replaceAll("<", "\\<"));
    }
  });

  test("docs/airlock.example.toml is accepted, with the values that it shows", () => {
    const config = readConfig({ AIRLOCK_CONFIG: exampleFile });
    expect(Object.keys(config.job_types)).toEqual(["default", "science", "train", "fetch"]);
    expect(config.job_types["train"]).toMatchObject({ gpus: 1, labels: { gpu: "a100" } });
    expect(config).toMatchObject({ max_timeout: 600, max_stdout_bytes: 4 * 1024 * 1024 });
  });

  /** The keys that docs/contract.md 3.1 promises. */
  const contractKeys = `production_mode max_workers max_queue_size default_timeout max_timeout
  max_stdout_bytes max_artifact_bytes security_mode container_runtime api_auth_enabled api_keys
  api_auth_header allow_unauthenticated_network_access database_url api_rate_limit_enabled
  api_rate_limit_requests api_rate_limit_window_seconds max_request_bytes api_docs_public host port
  data_dir trusted_proxies base_image job_types enable_seccomp allow_runtime_requirements
  enable_runtime_dependency_cache`.split(/\s+/);

  test("every key of the contract exists", () => {
    const keys = Object.keys(Config.shape);
    expect(contractKeys.filter((key) => !keys.includes(key))).toEqual([]);
  });
});

test.each<[string, z.ZodType]>([
  ["`true` or `false`", z.boolean()],
  ["integer", z.int()],
  ["integer, at least 1", z.int().min(1)],
  ["integer, 0 to 65535", z.int().min(0).max(65_535)],
  ["number, at most 2.5", z.number().max(2.5)],
  ["text", z.string().min(1)],
  ["text, at most 9 characters", z.string().max(9)],
  ["list of text, at least 16 characters", z.array(z.string().min(16))],
  ["list of text", z.array(z.union([z.ipv4(), z.cidrv4()]))],
  ["`a` or `b`", z.enum(["a", "b"])],
  ["table of text", z.record(z.string(), z.string())],
  ["table of tables", z.record(z.string(), z.strictObject({ a: z.string() }))],
  ["table", z.strictObject({ a: z.string() })],
  ["URL", z.url()],
])("%s", (words, schema) => {
  expect(describeType(z.toJSONSchema(schema) as JsonSchema)).toBe(words);
});

describe("sections", () => {
  const text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n<!-- y:begin -->\n<!-- y:end -->\n";

  test("replaces only the text between the markers", () => {
    expect(fillSections(text, { x: "$1 new\n" })).toBe(
      "a\n<!-- x:begin -->\n$1 new\n<!-- x:end -->\nb\n<!-- y:begin -->\n<!-- y:end -->\n",
    );
  });

  test("a missing marker is an error", () => {
    expect(() => fillSections(text, { z: "" })).toThrow('the markers of "z" are missing');
  });
});

const files = Object.entries(await generatedFiles(await clientDocument()));

test.each(["TypeScript", "Python"])(
  "the generated part of the %s client is up to date (scripts/run writes it if its sources are newer)",
  (language) => {
    const own = files.filter(([file]) => file.startsWith(`clients/${language.toLowerCase()}/`));
    for (const [file, text] of own) expect(readFileSync(file, "utf8")).toBe(text);
  },
);

describe("packages", () => {
  type Package = { version: string; license: string; files?: string[] };
  const read = (file: string): string => readFileSync(file, "utf8");
  const packageOf = (folder: string) => JSON.parse(read(`${folder}package.json`)) as Package;

  test.each(["clients/typescript/", "clients/cli/"])(
    "%s has the service's version, its licence and its changelog",
    (folder) => {
      expect(packageOf(folder)).toMatchObject({ version, license: "MIT" });
      expect(packageOf(folder).files).toContain("CHANGELOG.md");
      expect(read(`${folder}CHANGELOG.md`)).toContain(`## ${version}`);
      expect(read(`${folder}LICENSE`)).toBe(read("LICENSE"));
      expect(read(`${folder}README.md`)).toContain("npm pack --ignore-scripts=false");
    },
  );

  test("clients/python has the service's version, its licence and its changelog", () => {
    const project = read("clients/python/pyproject.toml");
    expect(project).toContain('version = { attr = "airlock.__version__" }');
    const module = read("clients/python/src/airlock/__init__.py");
    expect(module).toContain(`__version__ = "${version}"`);
    expect(project).toContain('license = "MIT"\nlicense-files = ["LICENSE"]');
    expect(read("clients/python/CHANGELOG.md")).toContain(`## ${version}`);
    expect(read("clients/python/LICENSE")).toBe(read("LICENSE"));
    expect(read("clients/python/README.md")).toContain("pip install");
  });
});
