import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { makeSmallDisk } from "../../../scripts/testing/machine.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import { pass, startHttpProxy } from "../../../shared/testing/http.ts";
import { programArgs } from "../../../shared/testing/program.ts";
import { commandFor, startCommandService } from "../../testing/command.ts";
import { exitCode } from "../exit.ts";

describe("commands", async () => {
  const key = "key-0123456789abcdef";
  const { service, folder, airlock, script, detached } = await startCommandService({
    key,
    api: { AIRLOCK_OPERATOR_KEYS: key },
  });

  test("run writes the code's streams to its own and exits with the code's status", async () => {
    const path = script(
      "both.py",
      "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)",
    );
    const { code, stdout, stderr } = await airlock.run(["run", path]);
    expect({ code, stdout }).toEqual({ code: 7, stdout: "out\n" });
    expect(stderr).toContain("err\n");
    expect(stderr).toContain("failed (exit code 7)");
  });

  test("run writes bytes that are no text into a file as they are", async () => {
    const path = script(
      "bytes.py",
      "import sys; print('text'); sys.stdout.flush(); sys.stdout.buffer.write(bytes(range(256)) * 4)",
    );
    const file = join(folder, "bytes.out");
    const out = openSync(file, "w");
    const child = spawn(process.execPath, [...programArgs("clients/cli/main.ts"), "run", path], {
      env: { ...process.env, AIRLOCK_URL: service.url, AIRLOCK_KEY: key },
      stdio: ["ignore", out, "inherit"],
    });
    const [code] = (await once(child, "close")) as [number];
    closeSync(out);
    expect(code).toBe(0);
    const all = Buffer.from(Array.from({ length: 1024 }, (_, n) => n % 256));
    expect(readFileSync(file)).toEqual(Buffer.concat([Buffer.from("text\n"), all]));
  });

  test("run gives the code input, arguments and standard input", async () => {
    const path = script(
      "given.py",
      "import json, sys; print(json.load(open('/input/data.json'))['n'], sys.argv[1:], input())",
    );
    const stdin = script("stdin.txt", "a line\n");
    const args = ["run", "-i", '{"n": 6}', "--stdin", stdin, path, "one", "--flag", "--help"];
    const { code, stdout, stderr } = await airlock.run(args);
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: "6 ['one', '--flag', '--help'] a line\n",
      stderr: "",
    });
  });

  test("run says when one of its options goes to the code, unless it comes after --", async () => {
    const path = script("args.py", "import sys; print(sys.argv[1:])");
    const after = await airlock.run(["run", path, "a", "-o", "--timeout=5"]);
    expect(after).toMatchObject({ code: 0, stdout: "['a', '-o', '--timeout=5']\n" });
    expect(after.stderr).toContain("airlock: -o, --timeout went to the code");
    const meant = await airlock.run(["run", path, "--", "-o", "--timeout=5"]);
    expect(meant).toEqual({ code: 0, stdout: "['-o', '--timeout=5']\n", stderr: "" });
  });

  test("run does not read standard input unless it is asked to, and says how to pass it on", async () => {
    const path = script("reads.py", "import sys; print(repr(sys.stdin.read()))");
    // Nobody ever closes this pipe.
    const { code, stdout, stderr } = await airlock.run(["run", path], { stdin: null });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "''\n" });
    expect(stderr).toContain("--stdin - passes this command's on");
    const given = await airlock.run(["run", "--stdin", "-", path], { stdin: "a line" });
    expect(given).toEqual({ code: 0, stdout: "'a line'\n", stderr: "" });
    const binary = await airlock.run(["run", "--stdin", process.execPath, path]);
    expect(binary).toMatchObject({ code: 2, stdout: "" });
    expect(binary.stderr).toContain("is not UTF-8 text: -f sends");
    const twice = await airlock.run(["run", "--stdin", "-", "-"], { stdin: "print(1)" });
    expect(twice).toMatchObject({ code: 2, stdout: "" });
  });

  test("run shows the warnings of a job that succeeded", async () => {
    const path = script("any.py", "print(1)");
    const { code, stdout, stderr } = await airlock.run(["run", "-r", "numpy", path]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "1\n" });
    expect(stderr).toMatch(/^airlock: The requirements \(numpy\) were not installed/);
  });

  test("run refuses a script that requires another Python than the job type's", async () => {
    const path = script(
      "needs.py",
      '# /// script\n# requires-python = ">=3.99"\n# ///\nprint(1)\n',
    );
    const { code, stderr } = await airlock.run(["run", path]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/requires Python >=3.99, and the job type default has 3/);
  });

  test("run uploads the files that the code reads", async () => {
    const path = script("reads.py", "print(open('/input/table.csv').read())");
    const file = script("local.csv", "1,2");
    const { code, stdout } = await airlock.run(["run", "-f", `${file}=table.csv`, path]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "1,2\n" });
    const missing = await airlock.run(["run", "-f", join(folder, "missing.csv"), path]);
    expect(missing.code).toBe(2);
    expect(missing.stderr).toContain("missing.csv");
  });

  test("build says that the key is wrong", async () => {
    const { code, stderr } = await commandFor(service.url, "another-key").run(["build", "default"]);
    expect(code).toBe(exitCode.refused);
    expect(stderr).toContain("airlock: the API key is missing, wrong or void");
  });

  test("run tells a time limit, a refusal and a service that is gone apart by its exit code", async () => {
    const endless = script("endless.py", "while True: pass");
    expect((await airlock.run(["run", "--timeout", "1", endless])).code).toBe(124);
    const refused = await airlock.run(["run", "-t", "nowhere", endless]);
    expect(refused.code).toBe(126);
    expect(refused.stderr).toContain("nowhere");
    const nowhere = `http://127.0.0.1:${await reservePort()}`;
    const gone = await commandFor(nowhere).run(["run", endless]);
    expect(gone.code).toBe(125);
    expect(gone.stderr).toContain(
      `${nowhere} does not answer (nothing listens there); trying again`,
    );
    const wrong = await commandFor("http://127.0.0.1:9").run(["ps"]);
    expect(wrong).toMatchObject({ code: 125, stdout: "" });
    expect(wrong.stderr).toMatch(
      /^airlock: http:..127.0.0.1:9 could not be reached: .*\nairlock doctor/,
    );
  });

  test("run --json is one document, of the record or of the refusal", async () => {
    const path = script("json.py", "print('x' * 10)");
    const { code, stdout } = await airlock.run(["--json", "run", path]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ status: "succeeded", stdout: "xxxxxxxxxx\n" });
    const refused = await airlock.run(["--json", "run", "-t", "nowhere", path]);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      error: { code: "invalid_request", correlation_id: expect.any(String) as string },
    });
  });

  test("a fault in the request is shown once", async () => {
    const { code, stderr } = await airlock.run(["ps", "-s", "bogus"]);
    expect(code).toBe(126);
    expect(stderr.split("status: must be one of")).toHaveLength(2);
  });

  test("rerun and fork show the output of the new job", async () => {
    const id = await detached("print('first')");
    expect((await airlock.run(["rerun", id])).stdout).toBe("first\n");
    const path = script("other.py", "print('other')");
    expect((await airlock.run(["fork", id, path])).stdout).toBe("other\n");
  });

  test("a batch has an answer for each line, in its place", async () => {
    const lines = '{"code": "print(1)"}\n\n{"code": ""}\n';
    const { code, stdout, stderr } = await airlock.run(["batch", "-"], { stdin: lines });
    expect(code).toBe(126);
    expect(stdout).toMatch(/^[0-9a-f-]{36}\nrefused: invalid_request: .*code/);
    expect(stderr).toContain("airlock ps --batch");
    const broken = await airlock.run(["batch", "-"], { stdin: '{"code": "1"}\n{' });
    expect(broken).toMatchObject({ code: 2, stdout: "" });
    expect(broken.stderr).toContain("line 2");
    const none = await airlock.run(["batch", "-"], { stdin: "\n" });
    expect(none).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("no request") as string,
    });
  });

  test("ps finds jobs by several statuses and by a text in their error", async () => {
    const args = ["run", "-m", "sought=1", "-"];
    await airlock.run(args, { stdin: "1/0" });
    await airlock.run(args, { stdin: "1" });
    const found = async (...filters: string[]) => {
      const { stdout } = await airlock.run(["--json", "ps", "-m", "sought=1", ...filters]);
      return (JSON.parse(stdout) as { status: string }[]).map(({ status }) => status);
    };
    expect(await found("-s", "failed", "-s", "succeeded")).toEqual(["succeeded", "failed"]);
    expect(await found("-s", "failed", "-s", "timeout")).toEqual(["failed"]);
    expect(await found("-e", "division")).toEqual(["failed"]);
  });

  test("ps finds jobs by their metadata", async () => {
    const args = ["run", "-d", "-m", "order=4711", "-"];
    const id = (await airlock.run(args, { stdin: "1" })).stdout.trim();
    const { stdout } = await airlock.run(["--json", "ps", "-m", "order=4711"]);
    expect(JSON.parse(stdout)).toMatchObject([{ execution_id: id }]);
    expect((await airlock.run(["ps", "-n", "0"])).stderr).toContain("from 1 to 1000");
  });

  test("login stores the address and a key that works, readable by the user alone", async () => {
    const config = join(folder, "config");
    mkdirSync(config);
    const env = { XDG_CONFIG_HOME: config, AIRLOCK_URL: "", AIRLOCK_KEY: "" };
    const wrong = await airlock.run(["login", service.url], { env, stdin: "not-the-key\n" });
    expect(wrong.code).toBe(126);
    const right = await airlock.run(["login", service.url], { env, stdin: `${key}\n` });
    expect(right.code).toBe(0);
    const replaced = await airlock.run(["login", service.url], { env, stdin: "not-the-key\n" });
    expect(replaced.code).toBe(126);
    const file = join(config, "airlock/config.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect((await airlock.run(["ps"], { env })).code).toBe(0);
  });

  test("agents are listed, drained and resumed by name, and hosts are invited", async () => {
    const name = `${service.name}-agent`;
    expect((await airlock.run(["agents", "list"])).stdout).toContain(name);
    expect((await airlock.run(["agents", "drain", name])).code).toBe(0);
    expect((await airlock.run(["agents", "list"])).stdout).toContain("draining");
    expect((await airlock.run(["agents", "resume", name])).code).toBe(0);
    expect((await airlock.run(["agents", "invite", "--name", "new"])).stdout).toMatch(/^alj_/);
    const unknown = await airlock.run(["agents", "drain", "nobody"]);
    expect(unknown).toMatchObject({ code: 2 });
    expect(unknown.stderr).toContain("airlock agents list");
  });

  test("doctor finds nothing wrong with a service that works", async () => {
    const { code, stdout } = await airlock.run(["doctor"]);
    expect({ code, stdout }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("a job runs") as string,
    });
  });

  test("health, types, dlq, ps and api answer in text and in JSON", async () => {
    await detached("raise ValueError('for the queue')");
    for (const [command, text] of [
      [["health"], "healthy"],
      [["types"], "default"],
      [["dlq", "list"], "value_error"],
      [["ps"], "succeeded"],
    ] as const) {
      expect((await airlock.run(command)).stdout).toContain(text);
      JSON.parse((await airlock.run(["--json", ...command])).stdout);
    }
    const { stdout } = await airlock.run(["api", "get", "/executions?limit=1"]);
    expect(JSON.parse(stdout)).toMatchObject({ limit: 1 });
  });

  test("what does not exist is refused with the command that lists what does", async () => {
    for (const [args, listing] of [
      [["show", "gone"], "airlock ps"],
      [["cancel", "gone"], "airlock ps"],
      [["build", "gone"], "airlock types"],
      [["dlq", "rm", "9999"], "airlock dlq list"],
      [["webhooks", "resend", "9999"], "airlock webhooks deliveries"],
    ] as const) {
      const { code, stderr } = await airlock.run(args);
      expect(code).toBe(126);
      expect(stderr).toContain(` does not exist. ${listing} lists those that do.\n`);
    }
    expect((await airlock.run(["api", "GET", "/gone"])).stderr).not.toContain("lists");
  });

  test("a misspelt command, option or job type is refused with the one that is near", async () => {
    for (const [args, meant] of [
      [["runn"], "Did you mean run?"],
      [["agents", "hosst"], "Did you mean hosts?"],
      [["ps", "--statsu", "failed"], "Did you mean --status?"],
      [["run", "-t", "defualt", script("any.py", "1")], 'did you mean "default"?'],
    ] as const) {
      expect((await airlock.run(args)).stderr).toContain(meant);
    }
  });

  test("a wrong command line exits with 2 and says where help is", async () => {
    for (const args of [
      ["nonsense"],
      ["ps", "--bogus"],
      ["run"],
      ["agents", "invite", "--expires", "x"],
    ]) {
      expect((await airlock.run(args)).code).toBe(2);
    }
    expect((await airlock.run(["--help"])).code).toBe(0);
  });
});

describe("languages", async () => {
  /** A language whose compiler refuses all code. */
  const strict = {
    file: "main.strict",
    compile: ["sh", "-c", "echo read {file}; echo no >&2; echo never >&2; exit 2"],
    run: ["true"],
  };
  const { airlock, script } = await startCommandService({
    api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: { languages: { strict } } }) },
  });

  test("run takes the language from the file's ending, or by name", async () => {
    const bash = script("args.sh", "echo $BASH_VERSION $1");
    const { code, stdout } = await airlock.run(["run", bash, "one"]);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^\d.* one\n$/)]);
    const perl = script("plain.txt", "print 6 * 7");
    expect(await airlock.run(["run", "-l", "perl", perl])).toMatchObject({ code: 0, stdout: "42" });
    const unknown = await airlock.run(["run", "-l", "perk", perl]);
    expect([unknown.code, unknown.stderr]).toEqual([126, expect.stringContaining('"perl"')]);
  });

  test("code that its compiler refuses fails with the compiler's own words", async () => {
    const { code, stdout, stderr } = await airlock.run(["run", "-l", "strict", script("a.x", "x")]);
    expect({ code, stdout, stderr }).toEqual({
      code: exitCode.failed,
      stdout: "",
      stderr: "read /code/main.strict\nno\nnever\nairlock: failed: compile_error: no\n",
    });
    const [id] = (await airlock.run(["ps", "-n", "1"])).stdout.match(/[-0-9a-f]{36}/)!;
    const logs = await airlock.run(["logs", id]);
    expect([logs.code, logs.stderr]).toEqual([0, stderr]);
    const shown = await airlock.run(["show", id]);
    expect(shown.stdout).toMatch(/^compiler {3}exit code 2 after \d+ ms$/m);
  });
});

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
