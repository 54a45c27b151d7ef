import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { zstdCompressSync } from "node:zlib";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connectEngine } from "../../agent/engine/engine.ts";
import { createFetchedImages, FETCHED } from "../../agent/images/transfer.ts";
import { testEngine } from "../../agent/testing/engine.ts";
import { writeWheels } from "../../agent/testing/package-index.ts";
import { systemClock } from "../../agent/waiting.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { pass, startHttpProxy } from "../../shared/testing/http.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { InProgressResult } from "../../shared/wire/executions.ts";
import { connect } from "../setup/engine.ts";
import { registryProgram } from "../setup/tools.ts";
import { inNetworkOf, makePrivateDockerd, type PrivateDockerd } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";
import {
  build,
  buildFirst,
  fromPypi,
  lastBuild,
  startTestService,
  type TestService,
  type Variables,
} from "../testing/test-service.ts";

const printAnswer = "import airlock_probe; print(airlock_probe.answer)";
const probe = { name: "airlock_probe", version: "42.0", source: "answer = 42\n" };

const asRoot = { ...needs("root", "docker-registry"), timeout: 600_000 };

describe("presets, from the real registries", { timeout: 1_800_000 }, () => {
  let service: TestService;
  beforeAll(async () => {
    await testEngine();
    const job_types = {
      science: { preset: "science" },
      documents: { preset: "documents", npm: ["mermaid@11"] },
    };
    service = await startTestService({
      api: { AIRLOCK_JOB_TYPES: JSON.stringify(job_types), AIRLOCK_MAX_IMAGE_BYTES: "0" },
    });
    await service.startAgent("agent", fromPypi);
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  /** Builds the image, and runs code on it that leaves one file; returns the log, the record and the file. */
  async function runOn(jobType: string, code: string) {
    const { log } = await buildFirst(service, jobType);
    const { job_id } = (await service.execute(code, { job_type: jobType, timeout: 120 })) as {
      job_id: string;
    };
    const { status, stdout, stderr, artifacts, timing } = await service.record(job_id);
    expect({ status, stdout, stderr }).toEqual({ status: "succeeded", stdout: "ok\n", stderr: "" });
    const name = artifacts?.[0]?.name;
    const file = await fetch(`${service.url}/jobs/${job_id}/artifacts/${name}`);
    return { log, timing, bytes: Buffer.from(await file.arrayBuffer()) };
  }

  test("science draws Chinese, Japanese and Korean without a warning, and has its packages", async () => {
    const { log, bytes } = await runOn(
      "science",
      `
import io, numpy, openpyxl, pandas, scipy.stats, sklearn.linear_model, zoneinfo
import matplotlib.pyplot as plot
frame = pandas.DataFrame({"x": numpy.arange(100.0)})
frame["y"] = 2 * frame.x + 1
assert round(sklearn.linear_model.LinearRegression().fit(frame[["x"]], frame.y).coef_[0], 6) == 2
frame.to_excel("/tmp/a.xlsx")
assert pandas.read_excel("/tmp/a.xlsx").y.sum() == frame.y.sum()
assert str(zoneinfo.ZoneInfo("Asia/Tokyo")) == "Asia/Tokyo"
plot.plot(frame.x, frame.y, label="日本語 한국어")
plot.title("中文 äöü")
plot.legend()
plot.savefig("/output/science.png")
print("ok")`,
    );
    expect(log.match(/^\[\d.*?:/gm)).toEqual([
      "[1/3] apt:",
      "[2/3] pip:",
      "[3/3] dockerfile line 1:",
    ]);
    expect(bytes.subarray(1, 4).toString()).toBe("PNG");
  });

  test("documents writes and reads files of each kind, and has Node for npm's packages", async () => {
    const { bytes } = await runOn(
      "documents",
      `
import subprocess, docx, pdfplumber, pptx, pypdf
from reportlab.pdfgen.canvas import Canvas
document = docx.Document()
document.add_paragraph("hello docx")
document.save("/tmp/a.docx")
said = subprocess.run(["pandoc", "/tmp/a.docx", "-t", "plain"], capture_output=True, text=True).stdout
assert "hello docx" in said, said
pptx.Presentation().save("/tmp/a.pptx")
canvas = Canvas("/output/a.pdf")
canvas.drawString(100, 700, "hello pdf")
canvas.save()
assert "hello pdf" in pypdf.PdfReader("/output/a.pdf").pages[0].extract_text()
with pdfplumber.open("/output/a.pdf") as pdf:
    assert "hello pdf" in pdf.pages[0].extract_text()
assert "hello pdf" in subprocess.run(["pdftotext", "/output/a.pdf", "-"], capture_output=True, text=True).stdout
open("/tmp/a.mjs", "w").write("import mermaid from 'mermaid'; console.log(typeof mermaid.render)")
node = subprocess.run(["node", "/tmp/a.mjs"], capture_output=True, text=True)
assert node.stdout == "function\\n", node.stderr
print("ok")`,
    );
    expect(bytes.subarray(0, 4).toString()).toBe("%PDF");
  });
});

describe("two hosts, each with an engine of its own", asRoot, () => {
  let far: PrivateDockerd;
  let wheels: string;
  let service: TestService;
  let proxy: ArchiveProxy;

  beforeAll(async () => {
    await testEngine();
    far = makePrivateDockerd();
    await far.start();
    wheels = tempFolder();
    writeWheels(wheels, probe);
  });
  afterAll(async () => {
    await far[Symbol.asyncDispose]();
  });

  /** An API, and an agent beside it. */
  async function startService(vars: Variables = {}): Promise<void> {
    service = await startTestService({
      api: {
        ...vars,
        AIRLOCK_LEASE_TTL_S: "30",
        AIRLOCK_LIVENESS_S: "15",
        // The agents look again, and so try again, at least this often.
        AIRLOCK_POLL_WAIT_S: "1",
        AIRLOCK_JOB_TYPES: JSON.stringify({
          remote: { requirements: ["airlock_probe"], labels: { host: "far" } },
        }),
      },
      agents: { ...vars, AIRLOCK_PIP_FIND_LINKS: wheels },
    });
    proxy = await startArchiveProxy(service.url);
    await service.startAgent("near");
  }
  afterEach(async () => {
    await service?.[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
    const engine = connect(far.host);
    for (const { Id } of await engine.listContainers({ all: true }))
      await engine.getContainer(Id).remove({ force: true });
    for (const { Id } of await engine.listImages())
      await engine.getImage(Id).remove({ force: true });
  });

  /** Without what a container needed. */
  const imagesOfFar = async () =>
    (await connect(far.host).listImages()).filter(
      ({ Labels }) => !Labels?.["io.airlock.furnished"],
    );

  /** An agent that builds nothing, and alone has the label that jobs of the type `remote` ask for. */
  const addFar = (vars: Variables = {}) =>
    service.startAgent("far", {
      AIRLOCK_API_URL: proxy.url,
      AIRLOCK_AGENT_LABELS: JSON.stringify({ host: "far" }),
      AIRLOCK_AGENT_BUILDS: "false",
      AIRLOCK_DOCKER_HOST: far.host,
      ...vars,
    });

  const submit = () => service.submit(printAnswer, {}, { job_type: "remote" });
  const message = async (id: string) =>
    (await service.send<InProgressResult>("GET", `/jobs/${id}/result`)).json.message;
  const untilMessage = async (id: string, words: RegExp) => {
    await expect.poll(() => message(id), { timeout: 120_000 }).toMatch(words);
  };
  /** Images, and bytes of layers, on the far engine. */
  async function stock(): Promise<{ images: number; bytes: number }> {
    const { Images, LayersSize } = (await connect(far.host).df()) as {
      Images: unknown[] | null;
      LayersSize: number;
    };
    return { images: Images?.length ?? 0, bytes: LayersSize };
  }
  /** Removes what was fetched there, as an agent without room would; returns the bytes left. */
  const pruneAll = () =>
    createFetchedImages({
      imageCalls: connectEngine(far.host),
      maxBytes: 0,
      clock: systemClock,
      log: getLogger(["airlock", "test"]),
    }).prune([], AbortSignal.timeout(60_000));
  const nothing = { images: 0, bytes: 0 };

  test("an image built on one runs on the other, with the same digest; on one engine nothing is transferred", async () => {
    await startService();
    const beside = await addFar({ AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"] ?? "" });
    const { digest } = await build(service, "remote", "v1.0.0");
    const expectRun = async (): Promise<void> => {
      const id = await submit();
      expect(await service.ended(id)).toMatchObject({
        status: "succeeded",
        stdout: "42\n",
        job_version: "v1.0.0",
        job_ref: `remote@${digest}`,
      });
    };
    await expectRun();
    beside.process.kill("SIGTERM");
    await beside.exit;
    expect(proxy.asked()).toBe(0);

    void proxy.next(whole);
    await addFar();
    await expectRun();
    const images = await imagesOfFar();
    expect(images).toMatchObject([
      { Id: digest, RepoTags: [`${FETCHED}:${digest.slice("sha256:".length)}`] },
    ]);
    expect(proxy.asked()).toBe(1);
  });

  test("a damaged, wrong or abandoned transfer leaves nothing, is reported and starts again; an interrupted one continues", async () => {
    await startService();
    const agent = await addFar();
    await build(service, "remote");
    const id = await submit();
    await untilMessage(id, /is on its way to 1 agent/);
    const foreign = zstdCompressSync(`${JSON.stringify({ config: 2, layers: [] })}\n{}`);
    for (const [damage, reason] of [
      [flipped, /it is damaged|a layer is not sha256:/],
      [replacedBy(foreign), /its id is not that of its configuration/],
    ] as const) {
      await proxy.next(damage);
      await untilMessage(id, reason);
      expect(await stock()).toEqual(nothing);
    }

    await proxy.next(stuck);
    agent.process.kill("SIGKILL");
    await agent.exit;
    await expect.poll(stock, { timeout: 60_000 }).toEqual(nothing);
    await expect
      .poll(() => readdirSync(join(far.dir, "data/tmp")), { timeout: 60_000 })
      .toEqual([]);

    const [asked, parts] = [proxy.asked(), proxy.parts()];
    await addFar();
    void proxy.next(cut);
    expect(await service.ended(id)).toMatchObject({ status: "succeeded", stdout: "42\n" });
    expect(proxy.asked() - asked).toBe(1 + proxy.parts() - parts);
    expect(proxy.parts()).toBeGreaterThan(parts);
  });

  test("over a registry: pushed and pulled by digest; while it is down both wait, and say why", async () => {
    const registry = await makeRegistry();
    const vars = {
      AIRLOCK_IMAGE_REGISTRY: registry.name,
      AIRLOCK_IMAGE_REGISTRY_USERNAME: registry.username,
      AIRLOCK_IMAGE_REGISTRY_PASSWORD: registry.password,
    };
    try {
      await startService(vars);
      await addFar();
      const building = build(service, "remote", "v1.0.0");
      await expect
        .poll(async () => (await lastBuild(service, "remote")).log, { timeout: 120_000 })
        .toMatch(/Not pushed: .*connection refused/);
      await registry.start();
      const { digest, image_ref } = await building;
      expect(image_ref).toBe(`${registry.name}/${service.name}-remote:v1.0.0`);

      const id = await submit();
      await untilMessage(id, /far could not get it: .*dial tcp/);
      await registry.start(inNetworkOf(far));
      expect(await service.ended(id)).toMatchObject({
        stdout: "42\n",
        job_ref: `remote@${digest}`,
      });
      const [image] = await imagesOfFar();
      expect(image?.RepoDigests).toEqual([
        expect.stringMatching(`^${registry.name}/${service.name}-remote@sha256:`),
      ]);
      expect(proxy.asked()).toBe(0);
      await expect.poll(pruneAll, { timeout: 60_000 }).toBe(0);
      expect(await stock()).toEqual(nothing);
    } finally {
      await registry[Symbol.asyncDispose]();
    }
  });
});

/** An image registry that asks for a password: Debian's docker-registry over one folder. */
type Registry = AsyncDisposable & {
  /** What images' names begin with: its loopback address, as engines trust no other without TLS. */
  readonly name: string;
  readonly username: string;
  readonly password: string;
  /** Runs it here, or on the loopback of another network, by a command that goes there. */
  readonly start: (enter?: readonly string[]) => Promise<void>;
};

const username = "builder";
const password = "a password: of its own";
/** The password by bcrypt. */
const hash = "$2y$05$abcdefghijklmnopqrstuuPU0WMhFjYLC.lZKfJKI.YEwQ/E8HJSa";

async function makeRegistry(): Promise<Registry> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-registry-"));
  const address = `127.0.0.1:${await reservePort()}`;
  const users = join(folder, "htpasswd");
  const settings = join(folder, "config.json");
  writeFileSync(users, `${username}:${hash}\n`);
  writeFileSync(
    settings,
    // JSON is YAML.
    JSON.stringify({
      version: "0.1",
      storage: { filesystem: { rootdirectory: join(folder, "images") } },
      http: { addr: address, secret: "that both share" },
      auth: { htpasswd: { realm: "test", path: users } },
    }),
  );
  const processes: ChildProcess[] = [];

  async function start(enter: readonly string[] = []): Promise<void> {
    const [goThere, ...how] = enter;
    if (goThere !== undefined) execFileSync(goThere, [...how, "ip", "link", "set", "lo", "up"]);
    const [program, ...args] = [...enter, registryProgram(), "serve", settings];
    const registry = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    processes.push(registry);
    const said: string[] = [];
    for await (const line of createInterface({ input: registry.stderr })) {
      said.push(line);
      if (line.includes("listening on")) return void registry.stderr.resume();
    }
    throw new Error(`the registry did not start:\n${said.join("\n")}`);
  }

  return {
    name: `${address}/team`,
    username,
    password,
    start,
    [Symbol.asyncDispose]: async () => {
      for (const registry of processes) {
        const ended = once(registry, "exit");
        if (registry.kill("SIGKILL")) await ended;
      }
      rmSync(folder, { recursive: true });
    },
  };
}

/** What becomes of the archive of an image on its way. */
type Damage = (archive: Buffer, answer: ServerResponse) => void;

/** An API's address that agents reach it by, where archives of images wait and may be spoilt. */
type ArchiveProxy = AsyncDisposable & {
  readonly url: string;
  /** Archives that were asked for so far. */
  readonly asked: () => number;
  /** Those of which only a part was asked for: they pass as they are. */
  readonly parts: () => number;
  /** Resolves once the next archive that is asked for has come, and was treated so. */
  readonly next: (damage: Damage) => Promise<void>;
};

const whole: Damage = (archive, answer) => void answer.end(archive);
/** It breaks off in the middle. */
const cut: Damage = (archive, answer) =>
  void answer.write(archive.subarray(0, archive.length / 2), () => answer.destroy());
/** Nothing comes after its middle, and the connection stays. */
const stuck: Damage = (archive, answer) =>
  void answer.write(archive.subarray(0, archive.length / 2));
/** One bit is another. */
const flipped: Damage = (archive, answer) => {
  archive[Math.floor(archive.length / 2)]! ^= 1;
  answer.end(archive);
};
const replacedBy =
  (other: Buffer): Damage =>
  (_archive, answer) =>
    void answer.setHeader("content-length", other.length).end(other);

async function startArchiveProxy(apiUrl: string): Promise<ArchiveProxy> {
  const waiting: { damage: Damage; done: () => void }[] = [];
  let wake = Promise.withResolvers<void>();
  let asked = 0;
  let parts = 0;

  async function treat(archive: Buffer, answer: ServerResponse): Promise<void> {
    while (waiting.length === 0 && !answer.closed) {
      await Promise.race([wake.promise, once(answer, "close")]);
    }
    if (answer.closed) return;
    const { damage, done } = waiting.shift()!;
    damage(archive, answer);
    done();
  }

  const proxy = await startHttpProxy(apiUrl, (reply, answer, request) => {
    const isArchive = request.url!.endsWith("/archive");
    if (isArchive) asked += 1;
    if (isArchive && request.headers.range !== undefined) parts += 1;
    answer.on("close", () => reply.destroy());
    if (!isArchive || reply.statusCode !== 200) return pass(reply, answer, request);
    for (const [name, value] of Object.entries(reply.headers)) answer.setHeader(name, value ?? "");
    void reply.toArray().then((parts: Buffer[]) => treat(Buffer.concat(parts), answer));
  });
  return {
    ...proxy,
    asked: () => asked,
    parts: () => parts,
    next: (damage) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.push({ damage, done: resolve });
      wake.resolve();
      wake = Promise.withResolvers<void>();
      return promise;
    },
  };
}
