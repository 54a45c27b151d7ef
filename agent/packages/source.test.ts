import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { type PipConfig, readPackageSource } from "./source.ts";
import { pipConfig } from "../testing/pip-config.ts";

let folder: string;
beforeAll(() => {
  folder = tempFolder();
  for (const name of ["b-1-py3-none-any.whl", "a-1.tar.gz", "c-1.zip", "notes.txt"]) {
    writeFileSync(join(folder, name), name);
  }
  mkdirSync(join(folder, "more"));
  writeFileSync(join(folder, "ca.crt"), "certificate");
});

const read = (config: Partial<PipConfig>) => readPackageSource(pipConfig(config));

test("without configuration, pip asks PyPI", async () => {
  const { files, pipEnv, hosts } = await read({});
  expect({ files, hosts }).toEqual({
    files: [],
    hosts: { hosts: [], internet: true, proxy: null },
  });
  expect(Object.keys(pipEnv)).not.toContain("PIP_INDEX_URL");
  expect(pipEnv).toMatchObject({ PIP_BREAK_SYSTEM_PACKAGES: "1", PIP_NO_INPUT: "1" });
});

test("the packages of a folder are sent along, and then no index is used", async () => {
  const { files, pipEnv, hosts } = await read({ findLinks: folder });
  expect(files).toEqual(
    ["a-1.tar.gz", "b-1-py3-none-any.whl", "c-1.zip"].map((name) => ({
      name: `packages/${name}`,
      path: join(folder, name),
      sizeBytes: name.length,
    })),
  );
  expect(hosts).toMatchObject({ hosts: [], internet: false });
  expect(pipEnv).toMatchObject({
    PIP_FIND_LINKS: "/tmp/airlock-build/packages",
    PIP_NO_INDEX: "1",
  });
});

test("an index is used beside a folder if both are configured", async () => {
  const indexUrl = "https://me:secret@packages.example/simple";
  const { pipEnv, hosts } = await read({ indexUrl, findLinks: folder });
  expect(hosts.hosts).toEqual(["packages.example:443"]);
  expect(pipEnv).toMatchObject({ PIP_INDEX_URL: indexUrl });
  expect(Object.keys(pipEnv)).not.toContain("PIP_NO_INDEX");
  expect(Object.keys(pipEnv)).not.toContain("PIP_TRUSTED_HOST");
});

test("an index without TLS is trusted because the operator configured it", async () => {
  const { pipEnv } = await read({ indexUrl: "http://packages.example:8000/simple" });
  expect(pipEnv["PIP_TRUSTED_HOST"]).toBe("packages.example:8000");
});

test("the certificates are sent along", async () => {
  const { files, pipEnv } = await read({ caFile: join(folder, "ca.crt") });
  expect(files).toEqual([{ name: "ca.pem", path: join(folder, "ca.crt"), sizeBytes: 11 }]);
  expect(pipEnv["PIP_CERT"]).toBe("/tmp/airlock-build/ca.pem");
});

test.each([
  ["pip_find_links", { findLinks: "/nowhere" }],
  ["pip_ca_file", { caFile: "/nowhere" }],
])("the error names %s that cannot be read", async (key, config) => {
  const failure = read(config);
  await expect(failure).rejects.toBeInstanceOf(JobRefusal);
  await expect(failure).rejects.toMatchObject({
    type: "config_error",
    message: expect.stringMatching(
      `${key} of the agent cannot be read: /nowhere: .*ENOENT`,
    ) as string,
  });
});
