import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { v7 } from "uuid";
import { beforeEach, describe, expect, test } from "vitest";
import type { Deps } from "../deps.ts";
import { remove } from "../jobs/executions.ts";
import { advance } from "../jobs/lease.ts";
import { derive } from "../jobs/routes.ts";
import { submit } from "../jobs/submit.ts";
import { sweep } from "../sweep.ts";
import { ownTenant } from "../tenants/sql.ts";
import { miscounted } from "../testing/store-model.ts";
import { by, clientOf, testDeps } from "../testing/temp-store.ts";
import { store, useStore } from "../testing/use-store.ts";
import { findFile, forgetFile, storeFile } from "./files.ts";
import { byteRange, contentTypeOf, fileKey } from "./rules.ts";
import { removeExpiredFiles, storedFileBytes } from "./sql.ts";

describe("files", () => {
  const hourMs = 3_600_000;

  useStore();
  let clock: number;
  let deps: Deps;
  beforeEach(() => {
    clock = Date.parse("2026-11-22T00:00:00Z");
    const config = { file_retention_hours: 24, execution_retention_days: 30 };
    deps = testDeps(store.db, store.folder, () => clock, config);
    deps.newId = () => v7({ msecs: clock });
  });

  const streamOf = (content: string) => new Blob([content]).stream();

  async function upload(content = "content", idempotencyKey?: string): Promise<string> {
    const announced = { sizeBytes: content.length };
    return (await storeFile(clientOf(deps), "a.txt", streamOf(content), announced, idempotencyKey))
      .file_id;
  }

  const isStored = (id: string) => existsSync(join(store.folder, "artifacts", fileKey({ id })));
  const isThere = (id: string) => findFile(clientOf(deps), id).then(Boolean, () => false);

  const origin = { mode: "async", correlationId: "c", clientIp: "192.0.2.1" } as const;
  const request = { code: "print(1)", input_data: {}, startup_timeout: 60, requirements: [] };

  /** A finished job that has a file. */
  async function jobWith(file_id: string): Promise<string> {
    const files = [{ name: "in", file_id }];
    const { job_id } = await submit(
      clientOf(deps),
      { ...request, job_type: "default", files },
      origin,
    );
    await end(job_id);
    return job_id;
  }

  const end = (id: string) => advance(store.db, { id }, { kind: "cancel" }, clock);

  /** Moves the clock on, and runs the work that is due. */
  async function after(ms: number): Promise<void> {
    clock += ms;
    await sweep(deps);
  }

  async function removals(): Promise<unknown[]> {
    return (await store.db.client.execute("select prefix from removals")).rows.map((row) => row[0]);
  }

  test("a file is removed when it expires, its bytes an hour later", async () => {
    const id = await upload();
    await after(24 * hourMs - 1);
    expect(await isThere(id)).toBe(true);
    await after(1);
    expect([await isThere(id), isStored(id)]).toEqual([false, true]);
    await after(hourMs);
    expect([isStored(id), await removals()]).toEqual([false, []]);
  });

  test("a file that a job comes to refer to while the sweep removes it stays", async () => {
    const id = await upload();
    const expiresAt = clock + 24 * hourMs;
    const { client } = store.db;
    const batch: typeof client.batch = async (...given) => {
      clock = expiresAt - 1;
      await jobWith(id);
      clock = expiresAt;
      return client.batch(...given);
    };
    const racing = Object.create(client, { batch: { value: batch } }) as typeof client;
    await removeExpiredFiles({ ...store.db, client: racing }, expiresAt, 10, expiresAt);
    expect([await isThere(id), await removals()]).toEqual([true, []]);
  });

  test("an expired file cannot be used, also before the sweep", async () => {
    const id = await upload();
    clock += 24 * hourMs;
    await expect(jobWith(id)).rejects.toThrow("files.0.file_id");
  });

  test("a file stays as long as a record refers to it, and goes after the last one", async () => {
    const id = await upload();
    const first = await jobWith(id);
    const second = await jobWith(id);
    await after(48 * hourMs);
    expect(await isThere(id)).toBe(true);
    await remove(clientOf(deps), first, by(deps.now()));
    await after(2 * hourMs);
    expect([await isThere(id), isStored(id)]).toEqual([true, true]);
    await remove(clientOf(deps), second, by(deps.now()));
    await after(0);
    expect(await isThere(id)).toBe(false);
    await after(hourMs);
    expect([isStored(id), await removals()]).toEqual([false, []]);
  });

  test("the bytes of a file that a client removed stay with the records that refer to it", async () => {
    const id = await upload();
    const first = await jobWith(id);
    await forgetFile(clientOf(deps), id);
    const { job_id: second } = await derive(clientOf(deps), first, {}, origin);
    await end(second);
    await after(2 * hourMs);
    // Its removal waits, because its bytes count until they are gone.
    expect([await isThere(id), isStored(id), await removals()]).toEqual([false, true, [id]]);
    const { rows } = await store.db.client.execute(miscounted);
    expect([rows, (await ownTenant(clientOf(deps).db))!.storedBytes > 0]).toEqual([[], true]);
    await remove(clientOf(deps), first, by(deps.now()));
    await after(2 * hourMs);
    expect(isStored(id)).toBe(true);
    await remove(clientOf(deps), second, by(deps.now()));
    await after(hourMs - 1);
    expect(isStored(id)).toBe(true);
    await after(1);
    expect([isStored(id), await removals()]).toEqual([false, []]);
    expect((await ownTenant(clientOf(deps).db))!.storedBytes).toBe(0);
  });

  test("removing a file that does not exist orders nothing's removal: a client chose the id", async () => {
    for (const id of ["..%2fa", "../a", "./a", v7(), `${v7()}/${v7()}`]) {
      await expect(forgetFile(clientOf(deps), id)).rejects.toThrow("does not exist");
    }
    expect(await removals()).toEqual([]);
  });

  test("executions that retention removes let their files go", async () => {
    const id = await upload();
    await jobWith(id);
    await after(30 * 24 * hourMs + 1);
    await after(0);
    await after(hourMs);
    expect([await isThere(id), isStored(id), await removals()]).toEqual([false, false, []]);
  });

  test("an upload that breaks off leaves nothing after the next sweep", async () => {
    const broken = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new Uint8Array(9)),
      pull: (controller) => controller.error(new TypeError("terminated")),
    });
    await expect(storeFile(clientOf(deps), "a", broken, { sizeBytes: 10 })).rejects.toThrow(
      "broke off",
    );
    await after(0);
    expect(await removals()).toEqual([]);
    expect(readdirSync(join(store.folder, "artifacts", "incoming"))).toEqual([]);
  });

  test("the bytes of a process that died before it recorded them are removed", async () => {
    const { artifacts } = deps;
    let id = "";
    const dying: Deps = {
      ...deps,
      artifacts: {
        ...artifacts,
        async put(key, body, announced) {
          await artifacts.put(key, body, announced);
          id = key.split("/")[0] ?? "";
          return new Promise(() => {});
        },
      },
    };
    void storeFile(clientOf(dying), "a", streamOf("content"), { sizeBytes: 7 });
    await expect.poll(() => id).not.toBe("");
    expect([isStored(id), await removals()]).toEqual([true, [id]]);
    await after(24 * hourMs);
    expect([isStored(id), await removals()]).toEqual([false, []]);
  });

  test.each([
    ["the same file", "content"],
    ["another file", "other"],
  ])(
    "the bytes of an upload that is repeated with %s are removed by the next sweep",
    async (_, next) => {
      const id = await upload("content", "key");
      await upload(next, "key").catch(() => {});
      await after(0);
      expect(await removals()).toEqual([]);
      expect(readdirSync(join(store.folder, "artifacts"))).toEqual([id, "incoming"]);
    },
  );

  test("the key of an upload that has expired can be used again, also before the sweep", async () => {
    const first = await upload("content", "key");
    clock += 24 * hourMs;
    const second = await upload("other", "key");
    expect([await isThere(first), await isThere(second)]).toEqual([false, true]);
    expect(await upload("other", "key")).toBe(second);
  });

  test("an upload whose bytes were given up meanwhile is refused, and leaves nothing", async () => {
    const slow: Deps = {
      ...deps,
      artifacts: {
        ...deps.artifacts,
        async put(...given) {
          const sha256 = await deps.artifacts.put(...given);
          await after(24 * hourMs);
          return sha256;
        },
      },
    };
    const sent = storeFile(clientOf(slow), "a", streamOf("content"), { sizeBytes: 7 });
    await expect(sent).rejects.toThrow("took too long");
    expect(await removals()).toEqual([]);
  });

  describe("max_files_bytes", () => {
    beforeEach(() => {
      deps.config.max_files_bytes = 20;
    });
    const counted = () => storedFileBytes(store.db);

    test("uploads at the same time cannot pass it together, and what is refused leaves nothing", async () => {
      const sent = await Promise.allSettled(Array.from({ length: 5 }, () => upload("7 bytes")));
      expect(sent.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
      const refused = sent.filter(({ status }) => status === "rejected");
      const refusal = expect.objectContaining({ code: "unavailable" }) as unknown;
      expect(refused).toEqual(refused.map(() => ({ status: "rejected", reason: refusal })));
      expect([await counted(), await removals()]).toEqual([14, []]);
      expect(readdirSync(join(store.folder, "artifacts"))).toHaveLength(3);
    });

    test.each<[string, (id: string) => Promise<void>]>([
      ["expires", () => after(24 * hourMs)],
      ["is removed", async (id) => after(0).then(() => forgetFile(clientOf(deps), id))],
    ])("the room of a file that %s is free when its bytes are gone", async (_, go) => {
      await go(await upload("x".repeat(20)));
      await expect(upload("x")).rejects.toThrow("max_files_bytes");
      await after(hourMs);
      expect(await counted()).toBe(0);
      await upload("x".repeat(20));
    });

    test("an upload that breaks off or repeats another one gives its room back", async () => {
      await expect(
        storeFile(clientOf(deps), "a", streamOf("short"), { sizeBytes: 20 }),
      ).rejects.toThrow("size or SHA-256");
      expect(await counted()).toBe(20);
      await after(0);
      await upload("x", "key");
      await upload("x", "key");
      await after(0);
      expect(await counted()).toBe(1);
    });

    test("0 is no limit", async () => {
      deps.config.max_files_bytes = 0;
      await upload("x".repeat(21));
      expect(await counted()).toBe(21);
    });
  });
});

test.each<[string | undefined, ReturnType<typeof byteRange>]>([
  [undefined, undefined],
  ["bytes=0-0", { offset: 0, length: 1 }],
  ["bytes=2-4", { offset: 2, length: 3 }],
  ["bytes=2-", { offset: 2, length: 8 }],
  ["bytes=-3", { offset: 7, length: 3 }],
  ["bytes=-99", { offset: 0, length: 10 }],
  ["bytes=8-99", { offset: 8, length: 2 }],
  ["bytes=10-", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=4-2", undefined],
  ["bytes=0-1,3-4", undefined],
  ["bytes=-", undefined],
  ["lines=1-2", undefined],
  ["bytes=a-b", undefined],
])("Range %s of ten bytes", (header, expected) => {
  expect(byteRange(header, 10)).toEqual(expected);
});

test("a range lies inside its file, whatever the header", () => {
  const header = fc.oneof(
    fc.string(),
    fc.tuple(fc.nat(), fc.option(fc.nat())).map(([a, b]) => `bytes=${a}-${b ?? ""}`),
  );
  fc.assert(
    fc.property(header, fc.nat(), (text, size) => {
      const range = byteRange(text, size);
      if (range === undefined || range === "unsatisfiable") return;
      expect(range.length).toBeGreaterThan(0);
      expect(range.offset).toBeGreaterThanOrEqual(0);
      expect(range.offset + range.length).toBeLessThanOrEqual(size);
    }),
  );
});

const openXml = "application/vnd.openxmlformats-officedocument";

test.each([
  ["report.xlsx", `${openXml}.spreadsheetml.sheet`],
  ["report.docx", `${openXml}.wordprocessingml.document`],
  ["sub/table.PARQUET", "application/vnd.apache.parquet"],
  ["table.feather", "application/vnd.apache.arrow.file"],
  ["README.md", "text/markdown; charset=utf-8"],
  ["rows.jsonl", "application/x-ndjson"],
  ["rows.ndjson", "application/x-ndjson"],
  ["notebook.ipynb", "application/x-ipynb+json"],
  ["arrays.npz", "application/zip"],
  ["config.yaml", "text/yaml; charset=utf-8"],
  ["pyproject.toml", "application/toml"],
  ["main.py", "text/x-python; charset=utf-8"],
  ["table.tsv", "text/tab-separated-values; charset=utf-8"],
  ["run.log", "text/plain; charset=utf-8"],
  ["table.csv", "text/csv; charset=utf-8"],
  ["a.txt", "text/plain; charset=utf-8"],
  ["page.html", "text/html; charset=utf-8"],
  ["code.js", "text/javascript; charset=utf-8"],
  ["plot.png", "image/png"],
  ["plot.svg", "image/svg+xml; charset=utf-8"],
  ["data.xml", "application/xml; charset=utf-8"],
  ["data.json", "application/json"],
  ["voice.opus", "audio/opus"],
  ["all.tar.gz", "application/gzip"],
])("%s is %s", (name, type) => {
  expect(contentTypeOf(name)).toBe(type);
});

test.each(["Makefile", "csv", "a.unheard-of", "a.", ".env", "png/none"])(
  "%s is bytes of an unknown type",
  (name) => {
    expect(contentTypeOf(name)).toBe("application/octet-stream");
  },
);
