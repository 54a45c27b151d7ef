import { afterEach, expect, test } from "vitest";
import { testEngine } from "../sandbox/testing/engine.ts";
import { closeAll, problems } from "../sandbox/testing/package-world.ts";
import { runCode } from "../sandbox/testing/run-code.ts";
import { createPackageProxy } from "./proxy.ts";
import { certificatesName, readRuntimeSource } from "./runtime-source.ts";

afterEach(closeAll);

test("PyPI behind a mirror with a private address serves requirements if its hosts are named", async () => {
  const caFile = process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt";
  const { pipEnv, reach, certificates } = await readRuntimeSource({
    indexUrl: undefined,
    findLinks: undefined,
    caFile,
    hosts: ["pypi.org", "files.pythonhosted.org"],
    proxyUrl: undefined,
  });
  const from = {
    pipEnv,
    files: { [certificatesName]: certificates ?? new Uint8Array() },
    serve: createPackageProxy(reach, (words) => problems.push(words)),
    keep: null,
    maxBytes: null,
  };
  const packages = { requirements: ["idna==3.10"], from };
  const code = "import idna; print(idna.__version__)";
  const run = await runCode(await testEngine(), code, { spec: { packages: "memory" }, packages });
  expect({ out: run.out, problems }).toEqual({ out: "3.10\n", problems: [] });
});
