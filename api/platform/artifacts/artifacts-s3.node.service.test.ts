import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type AddressInfo, type Server } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Config, ConfigError } from "../../../shared/config/config.ts";
import { describeError } from "../../../shared/log-line.ts";
import { ArtifactOutage } from "../../deps.ts";
import { type S3Service, startS3 } from "../../testing/start-s3.ts";
import { artifactsS3, type S3Artifacts } from "./artifacts-s3.node.ts";
import { openArtifacts } from "./open-artifacts.node.ts";
import { getLogger } from "@logtape/logtape";
import { needs } from "../../../scripts/testing/needs.ts";

const announced = {
  sizeBytes: 3,
  sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
};
const abc = () => new Blob(["abc"]).stream();

describe("an S3 bucket", needs("swift"), () => {
  let service: S3Service;
  beforeAll(async () => {
    service = await startS3();
  });
  afterAll(() => service?.close());

  let store: S3Artifacts | undefined;
  let silent: Server | undefined;
  afterEach(async () => {
    await store?.close();
    silent?.close();
    [store, silent] = [undefined, undefined];
  });

  function opened(changes: object): S3Artifacts {
    return (store = artifactsS3({
      ...service.bucket,
      pathStyle: true,
      timeoutMs: 30_000,
      ...changes,
    }));
  }

  async function failure(call: Promise<unknown>): Promise<unknown> {
    return call.then(
      () => undefined,
      (error: unknown) => error,
    );
  }

  test("all pages of a list are removed", async () => {
    const s3 = opened({});
    for (let i = 0; i < 7; i++) await s3.put(`many/${i}`, abc(), announced);
    expect(await service.keys()).toHaveLength(7);
    await s3.remove("many");
    expect(await service.keys()).toEqual([]);
  });

  test("the service's reason for a refusal is reported, without the secret", async () => {
    const secretAccessKey = "another-secret";
    const error = await failure(opened({ secretAccessKey }).put("x", abc(), announced));
    expect(error).toBeInstanceOf(ArtifactOutage);
    expect(describeError(error)).toMatch(/refused a request: 403 SignatureDoesNotMatch: /);
    expect(describeError(error)).not.toContain(secretAccessKey);
  });

  describe("a service that is out of reach is an outage", () => {
    /** Takes connections, reads nothing and says nothing. */
    async function silentEndpoint(): Promise<string> {
      silent = createServer((socket) => void socket.pause().on("error", () => {}));
      silent.listen(0, "127.0.0.1");
      await once(silent, "listening");
      return `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    }

    const size = 64 * 1024 * 1024;
    const endless = () =>
      new ReadableStream<Uint8Array>({
        pull: (controller) => controller.enqueue(new Uint8Array(1024 * 1024)),
      });

    test.each([
      ["get", (s3: S3Artifacts) => s3.get("x")],
      ["put", (s3: S3Artifacts) => s3.put("x", abc(), announced)],
      [
        "put that it reads nothing of",
        (s3: S3Artifacts) => s3.put("x", endless(), { ...announced, sizeBytes: size }),
      ],
      ["remove", (s3: S3Artifacts) => s3.remove("x")],
    ])("when it is silent: %s", async (_name, call) => {
      const error = await failure(
        Promise.resolve(call(opened({ endpoint: await silentEndpoint(), timeoutMs: 100 }))),
      );
      expect(error).toBeInstanceOf(ArtifactOutage);
      expect(describeError(error)).toMatch(/does not answer: .*Timeout/i);
    });

    test("when nobody listens", async () => {
      const endpoint = await silentEndpoint();
      silent?.close();
      const error = await failure(opened({ endpoint }).get("x"));
      expect(describeError(error)).toMatch(/does not answer: .*ECONNREFUSED/);
    });

    test("when it breaks off in the middle of a file", async () => {
      // More than the sockets' buffers take.
      const bytes = new Uint8Array(size / 2);
      const sha256 = createHash("sha256").update(bytes).digest("hex");
      const patient = opened({});
      await patient.put("large", new Blob([bytes]).stream(), { sizeBytes: bytes.length, sha256 });
      await patient.close();
      const s3 = opened({ timeoutMs: 5000 });
      const reader = (await s3.get("large"))!.getReader();
      await reader.read();
      service.pause();
      try {
        await expect(
          (async () => {
            while (!(await reader.read()).done);
          })(),
        ).rejects.toThrow(/timeout/i);
      } finally {
        service.resume();
      }
    });
  });

  describe("the configuration", () => {
    const log = getLogger(["airlock", "test"]);
    const settings = () => ({
      s3_endpoint: service.bucket.endpoint,
      s3_bucket: service.bucket.bucket,
      s3_access_key_id: service.bucket.accessKeyId,
      s3_secret_access_key: service.bucket.secretAccessKey,
    });
    const open = (config: object) => failure(openArtifacts(Config.parse(config), log));

    test("with all keys opens the bucket", async () => {
      const artifacts = await openArtifacts(Config.parse(settings()), log);
      await artifacts.put("configured/x", abc(), announced);
      expect(await service.keys()).toContain("configured/x");
    });

    test("names the keys that are missing", async () => {
      const { s3_bucket, s3_endpoint } = settings();
      const error = await open({ s3_bucket, s3_endpoint });
      expect(error).toBeInstanceOf(ConfigError);
      expect((error as Error).message).toMatch(/needs s3_access_key_id, s3_secret_access_key too/);
    });

    test.each([
      ["another secret", { s3_secret_access_key: "another-secret" }, /403 SignatureDoesNotMatch/],
      ["no such bucket", { s3_bucket: "elsewhere" }, /bucket elsewhere .* 404 NoSuchBucket/],
    ])("is refused at start for %s, without the secret", async (_name, changes, said) => {
      const error = await open({ ...settings(), ...changes });
      expect(error).toBeInstanceOf(ConfigError);
      expect((error as Error).message).toMatch(said);
      expect((error as Error).message).not.toContain("secret");
    });

    test("stays valid while the service is out of reach", async () => {
      const s3_endpoint = "http://127.0.0.1:1";
      const artifacts = await openArtifacts(Config.parse({ ...settings(), s3_endpoint }), log);
      await expect(artifacts.get("x")).rejects.toThrow(ArtifactOutage);
    });
  });
});
