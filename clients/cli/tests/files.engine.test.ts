import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { makeSmallDisk } from "../../../scripts/testing/machine.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { pass, startHttpProxy } from "../../../shared/testing/http.ts";
import { commandFor, startCommandService } from "../../testing/command.ts";

const { service, folder, airlock, script, detached } = await startCommandService();

test("artifacts are listed, and fetched into a folder without replacing files", async () => {
  const id = await detached(
    "import os; os.mkdir('/output/d'); open('/output/a.txt', 'w').write('A'); open('/output/d/b.txt', 'w').write('B')",
  );
  const listed = await airlock.run(["artifacts", id]);
  expect(listed.stdout).toContain("d/b.txt");
  const out = join(folder, "out");
  const saved = await airlock.run(["artifacts", id, "-o", out]);
  expect(saved.stdout.trim().split("\n")).toEqual([join(out, "a.txt"), join(out, "d/b.txt")]);
  expect(readFileSync(join(out, "d/b.txt"), "utf8")).toBe("B");
  writeFileSync(join(out, "a.txt"), "mine");
  const again = await airlock.run(["artifacts", id, "-o", out]);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain("--force");
  expect(readFileSync(join(out, "a.txt"), "utf8")).toBe("mine");
  expect((await airlock.run(["artifacts", id, "a.txt", "-o", out, "--force"])).code).toBe(0);
  expect(readFileSync(join(out, "a.txt"), "utf8")).toBe("A");
});

test("run -o keeps a file that exists, and says how to fetch the artifacts of the finished job", async () => {
  const out = join(folder, "taken");
  mkdirSync(out);
  writeFileSync(join(out, "a.txt"), "mine");
  const path = script("writes.py", "open('/output/a.txt', 'w').write('A')");
  const { code, stderr } = await airlock.run(["run", "-o", out, path]);
  expect(code).toBe(2);
  expect(stderr).toMatch(
    /a\.txt exists; --force replaces it\nThe job has ended; airlock artifacts .* -o/,
  );
  expect(readFileSync(join(out, "a.txt"), "utf8")).toBe("mine");
});

test(
  "run -o says which file a full disk has no room for, and how to fetch it later",
  needs("root"),
  async () => {
    using disk = makeSmallDisk(join(folder, "small"), 1);
    const path = script("large.py", "open('/output/a.bin', 'wb').write(bytes(2_000_000))");
    const { code, stderr } = await airlock.run(["run", "-o", disk.path, path]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /a\.bin cannot be written: ENOSPC.*\nThe job has ended; airlock artifacts [0-9a-f-]{36} -o/,
    );
    expect(readdirSync(disk.path)).toEqual([]);
  },
);

test("a partial download has a unique name: other files named .part are kept", async () => {
  const id = await detached(
    "for name in ('a.txt', 'a.txt.part'): open('/output/' + name, 'w').write(name)",
  );
  const out = join(folder, "parts");
  mkdirSync(out);
  writeFileSync(join(out, "a.txt.part"), "mine");
  expect((await airlock.run(["artifacts", id, "a.txt", "-o", out])).code).toBe(0);
  expect(readFileSync(join(out, "a.txt.part"), "utf8")).toBe("mine");
  expect(readdirSync(out).toSorted()).toEqual(["a.txt", "a.txt.part"]);
  const names = ["a.txt.part", "a.txt"];
  expect((await airlock.run(["artifacts", id, ...names, "-o", out, "--force"])).code).toBe(0);
  expect(names.map((name) => readFileSync(join(out, name), "utf8"))).toEqual(names);
});

test("a file whose name is as long as names can be is fetched", async () => {
  const name = "n".repeat(255);
  const id = await detached(`open('/output/${name}', 'w').write('all of it')`);
  const out = join(folder, "long");
  expect((await airlock.run(["artifacts", id, "-o", out])).code).toBe(0);
  expect(readFileSync(join(out, name), "utf8")).toBe("all of it");
});

test("files are uploaded, listed, fetched and removed", async () => {
  const path = script("data.bin", "\u0000\u0001bytes");
  const id = (await airlock.run(["files", "put", path])).stdout.trim();
  expect((await airlock.run(["files", "list"])).stdout).toContain("data.bin");
  expect((await airlock.run(["files", "get", id, "-"])).stdout).toBe("\u0000\u0001bytes");
  expect((await airlock.run(["files", "rm", id])).code).toBe(0);
  expect((await airlock.run(["files", "get", id, "-"])).code).toBe(126);
});

test("a file that cannot be saved or sent is an error that says why, at once", async () => {
  const path = script("saved.bin", "bytes");
  const id = (await airlock.run(["files", "put", path])).stdout.trim();
  for (const [args, says] of [
    [["get", id, join(folder, "saved.bin/x")], "saved.bin"],
    [["get", id, folder, "--force"], "is a folder"],
    [["get", id, "/dev/null", "--force"], "not a regular file"],
    [["get", id, path], "--force replaces it"],
    [["get", id, "/proc/none/x"], "/proc/none cannot be made"],
    [["put", folder], "not a regular file"],
    [["put", join(folder, "missing")], "there is no file"],
  ] as const) {
    const { code, stderr } = await airlock.run(["files", ...args]);
    expect(code).not.toBe(0);
    expect(stderr).toContain(says);
  }
  expect((await airlock.run(["files", "get", id, path, "--force"])).code).toBe(0);
});

test("a command with several ids does all that it can, and says what became of each", async () => {
  const ids = [];
  for (const name of ["a", "b"]) {
    ids.push((await airlock.run(["files", "put", script(name, name)])).stdout.trim());
  }
  const { code, stdout, stderr } = await airlock.run(["files", "rm", ids[0]!, "gone", ids[1]!]);
  expect({ code, stdout }).toEqual({ code: 126, stdout: `${ids[0]} removed\n${ids[1]} removed\n` });
  expect(stderr).toContain("File gone does not exist. airlock files list lists those that do.");
  const json = await airlock.run(["--json", "dlq", "rm", "999999999"]);
  expect(JSON.parse(json.stdout)).toMatchObject([{ id: "999999999", error: { status: 404 } }]);
});

test("Ctrl-C while run -o fetches stops that at once, leaves no partial file, and says how to go on", async () => {
  const path = script("makes.py", "open('/output/a.bin', 'wb').write(b'x' * 1_000_000)");
  const out = join(folder, "stopped");
  await using slow = await startStallingProxy(service.url);
  const { child, ended } = commandFor(slow.url).start(["run", "-o", out, path]);
  await slow.stalled;
  child.kill("SIGINT");
  const { code, stderr } = await ended;
  expect(code).toBe(130);
  expect(stderr).toMatch(/interrupted\nThe job has ended; airlock artifacts .* -o FOLDER/);
  expect(readdirSync(out)).toEqual([]);
});

/** A way to the service on which the bytes of artifacts stop after the first. */
async function startStallingProxy(target: string) {
  const stalled = Promise.withResolvers<void>();
  const proxy = await startHttpProxy(target, (answer, response, request) => {
    if (!/\/artifacts\/./.test(request.url!)) return pass(answer, response, request);
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.once("data", (bytes: Buffer) => {
      answer.pause();
      response.write(bytes.subarray(0, 1), () => stalled.resolve());
    });
  });
  return { ...proxy, stalled: stalled.promise };
}
