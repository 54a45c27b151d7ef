import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { buffer } from "node:stream/consumers";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { ArtifactOutage, type ArtifactStore, UploadMismatch } from "../deps.ts";
import { type S3Service, startS3 } from "../testing/start-stores.ts";
import { artifactFolder, artifactsS3, openArtifacts, type S3Artifacts } from "./artifacts.node.ts";

describe("artifact stores", () => {
  interface Stored {
    store: ArtifactStore;
    close(): Promise<void>;
  }

  const timeoutMs = 30_000;

  async function inFolder(): Promise<Stored> {
    const folder = tempFolder();
    const close = () => Promise.resolve(rmSync(folder, { recursive: true }));
    return { store: artifactFolder(folder), close };
  }

  async function inBucket(): Promise<Stored> {
    const service = await startS3();
    const store = artifactsS3({ ...service.bucket, pathStyle: true, timeoutMs });
    return {
      store,
      async close() {
        await store.close();
        await service.close();
      },
    };
  }

  function announced(bytes: Uint8Array) {
    return { sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
  }

  /** A body that comes in parts of 1,000 bytes. */
  function streamed(bytes: Uint8Array): ReadableStream<Uint8Array> {
    let at = 0;
    return new ReadableStream({
      pull(controller) {
        if (at >= bytes.length) return controller.close();
        controller.enqueue(bytes.subarray(at, (at += 1000)));
      },
    });
  }

  async function read(
    store: ArtifactStore,
    key: string,
    range?: { offset: number; length: number },
  ) {
    const stream = await store.get(key, range);
    return stream && (await buffer(stream));
  }

  const bytes = new Uint8Array(randomBytes(100_000));

  describe("a folder", () => {
    testStore(inFolder);
  });
  describe("an S3 bucket", needs("swift"), () => {
    testStore(inBucket);
  });

  function testStore(open: () => Promise<Stored>): void {
    let stored: Stored;
    let store: ArtifactStore;
    beforeAll(async () => {
      stored = await open();
      ({ store } = stored);
    });
    afterAll(() => stored?.close());

    test("returns what was put, whole and in part", async () => {
      await store.put("a/1/x", streamed(bytes), announced(bytes));
      expect(await read(store, "a/1/x")).toEqual(Buffer.from(bytes));
      for (const range of [
        { offset: 0, length: 1 },
        { offset: 99_990, length: 10 },
        { offset: 1234, length: 70_000 },
      ]) {
        const part = bytes.subarray(range.offset, range.offset + range.length);
        expect(await read(store, "a/1/x", range)).toEqual(Buffer.from(part));
      }
      await store.put("a/1/x", streamed(bytes), announced(bytes));
      expect(await read(store, "a/1/x")).toEqual(Buffer.from(bytes));
    });

    test("keeps an empty file", async () => {
      const nothing = new Uint8Array();
      await store.put("a/1/empty", streamed(nothing), announced(nothing));
      expect(await read(store, "a/1/empty")).toEqual(Buffer.alloc(0));
      expect(await read(store, "a/1/nothing")).toBeUndefined();
    });

    test("computes the hash of what was put, if it was not announced", async () => {
      const { sizeBytes, sha256 } = announced(bytes);
      expect(await store.put("a/2/x", streamed(bytes), { sizeBytes })).toBe(sha256);
      expect(await store.put("a/2/y", streamed(bytes), { sizeBytes, sha256 })).toBe(sha256);
      expect(await read(store, "a/2/x")).toEqual(Buffer.from(bytes));
      const empty = await store.put("a/2/z", streamed(new Uint8Array()), { sizeBytes: 0 });
      expect(empty).toBe(announced(new Uint8Array()).sha256);
      for (const wrong of [sizeBytes - 1, sizeBytes + 1]) {
        const put = store.put("a/2/w", streamed(bytes), { sizeBytes: wrong });
        await expect(put).rejects.toThrow(UploadMismatch);
        expect(await read(store, "a/2/w")).toBeUndefined();
      }
    });

    test.each([
      ["another hash", streamed(bytes), { ...announced(bytes), sha256: "0".repeat(64) }],
      ["fewer bytes", streamed(bytes.subarray(1)), announced(bytes)],
      ["more bytes", streamed(bytes), announced(bytes.subarray(1))],
      ["a byte for an empty file", streamed(bytes.subarray(0, 1)), announced(bytes.subarray(0, 0))],
      [
        "another hash of an empty file",
        streamed(new Uint8Array()),
        { sizeBytes: 0, sha256: "0".repeat(64) },
      ],
    ])("shows nothing of an upload with %s than announced", async (name, body, promise) => {
      await expect(store.put(`b/1/${name.length}`, body, promise)).rejects.toThrow(UploadMismatch);
      expect(await read(store, `b/1/${name.length}`)).toBeUndefined();
    });

    test("shows nothing of an upload that breaks off", async () => {
      const broken = new ReadableStream<Uint8Array>({
        start: (controller) => controller.enqueue(bytes.subarray(0, 99_999)),
        pull: (controller) => controller.error(new TypeError("terminated")),
      });
      await expect(store.put("b/2/x", broken, announced(bytes))).rejects.toThrow("broke off");
      expect(await read(store, "b/2/x")).toBeUndefined();
    });

    test("removes what is under a prefix and nothing else", async () => {
      const small = bytes.subarray(0, 3);
      for (const key of ["c/1/v", "c/1/w", "c/1/x", "c/1/y", "c/2/x", "c2/1/x"]) {
        await store.put(key, streamed(small), announced(small));
      }
      await store.remove("c/1");
      await store.remove("c/1");
      expect(await read(store, "c/1/y")).toBeUndefined();
      expect(await read(store, "c/2/x")).toBeDefined();
      await store.remove("c");
      expect(await read(store, "c/2/x")).toBeUndefined();
      expect(await read(store, "c2/1/x")).toEqual(Buffer.from(small));
    });
  }
});

describe("artifacts s3", () => {
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
        expect((error as Error).message).toMatch(
          /needs s3_access_key_id, s3_secret_access_key too/,
        );
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
});
