import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, test } from "vitest";
import { waitUntil } from "../../../shared/testing/wait-until.ts";
import type { PackageRequest } from "../package-request.ts";
import { labels } from "../labels.ts";
import { testEngine } from "../testing/engine.ts";
import type { PackageIndex } from "../testing/package-index.ts";
import {
  closeAll,
  failure,
  indexOf,
  open,
  pipFrom,
  problems,
  wheel,
} from "../testing/package-world.ts";
import { deriveImage, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";

const { engine, image } = await testEngine();
afterEach(closeAll);

/** A server on another port of the index's host, which nobody may reach. */
async function bystander() {
  const requests: string[] = [];
  const server = createServer(({ url }, response) => {
    requests.push(url ?? "");
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push(server);
  return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const runBare = (packages: PackageRequest) =>
  runCode({ engine, image }, "", { spec: { packages: "memory" }, packages });

describe("pip fails in its own words, and nothing else is reached", () => {
  const install = async (index: PackageIndex, ...requirements: string[]): Promise<string> =>
    failure(runBare({ requirements, from: await pipFrom(index) }));

  test("an index that sends pip elsewhere", async () => {
    const other = await bystander();
    const index = await indexOf({
      redirects: {
        "/simple/airlock-meta/": "http://169.254.169.254/latest/meta-data/",
        "/simple/airlock-other/": `${other.url}/simple/airlock-other/`,
        "/simple/airlock-name/": `${other.url.replace("127.0.0.1", "localhost")}/`,
      },
      wheels: [
        wheel("airlock_front", "", { requires: [`x @ ${other.url}/x-1.0-py3-none-any.whl`] }),
      ],
    });
    for (const name of ["airlock-meta", "airlock-other", "airlock-name", "airlock-front"]) {
      problems.length = 0;
      expect(await install(index, name)).toMatch(/^InstallError/);
      expect(problems.join()).toMatch(/not on the internet|may not be reached/);
    }
    expect(other.requests).toEqual([]);
  });

  test("an index that is down", async () => {
    const index = await indexOf({});
    index.close();
    expect(await install(index, "airlock-probe")).toContain("No matching distribution found");
    expect(problems.join()).toContain("ECONNREFUSED");
  });

  test("an image without pip", async () => {
    const bare = await deriveImage(
      image,
      "rm -rf /usr/lib/python3*/dist-packages/pip /usr/local/lib/python3*/site-packages/pip",
    );
    try {
      const from = await pipFrom(await indexOf({}));
      const words = await failure(
        runCode({ engine, image: bare }, "", {
          spec: { packages: "memory" },
          packages: { requirements: ["x"], from },
        }),
      );
      expect(words).toContain("the image has no pip");
    } finally {
      await removeImages(bare);
    }
  });
});

/** What a shell in the one container of an agent prints. */
async function askInside(agentName: string, script: string): Promise<string> {
  const [found] = await engine.list(labels.agentName, agentName, AbortSignal.timeout(60_000));
  const exec = await rawEngine
    .getContainer(found?.id ?? "")
    .exec({ Cmd: ["sh", "-c", script], AttachStdout: true, Tty: true });
  return (await text(await exec.start({ Tty: true }))).replaceAll("\r", "");
}

const rightsOfPip = `
for process in /proc/[0-9]*; do
  tr '\\0' ' ' <$process/cmdline | grep -q -- '[-]-only-binary' && grep -E '^(Uid|Cap|NoNew)' $process/status
done`;

test("pip is root without capabilities; if it is given up, it ends with its container", async () => {
  const index = await indexOf({ opens: new Promise(() => {}) });
  const packages = { requirements: ["airlock-probe"], from: await pipFrom(index) };
  const giveUp = new AbortController();
  const agentName = `packages-${randomUUID()}`;
  const settings = {
    agentName,
    packages,
    installSignal: giveUp.signal,
    spec: { packages: "memory" as const },
  };
  const run = runCode({ engine, image }, "", settings);
  run.catch(() => {});
  await waitUntil("pip asks the index", () => index.requests.length > 0);
  const none = "0".repeat(16);
  const sets = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((set) => `Cap${set}:\t${none}\n`);
  expect(await askInside(agentName, rightsOfPip)).toBe(
    `Uid:\t0\t0\t0\t0\n${sets.join("")}NoNewPrivs:\t1\n`,
  );
  giveUp.abort(new Error("given up"));
  await expect(run).rejects.toThrow("given up");
});
