import { readFileSync } from "node:fs";
import { build } from "esbuild";
import { expect, test } from "vitest";

test("what the Dockerfile runs is in the image: .dockerignore lets its files of testing folders through", async () => {
  const { metafile } = await build({
    entryPoints: [
      "api/node.ts",
      "agent/main.ts",
      "scripts/clients/write-typescript.ts",
      "scripts/console.ts",
    ],
    bundle: true,
    write: false,
    metafile: true,
    platform: "node",
    format: "esm",
    packages: "external",
    outdir: ".",
    logLevel: "error",
  });
  const needed = Object.keys(metafile.inputs).filter((file) => file.includes("/testing/"));
  const allowed = readFileSync(".dockerignore", "utf8").match(/(?<=^!).*\/testing\/.*$/gm);
  expect(needed.sort()).toEqual(allowed?.sort());
});
