import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { rawEngine } from "../../agent/testing/raw-engine.ts";
import { languages } from "../../shared/languages.ts";
import type { ExecutionRecord } from "../../shared/wire/executions.ts";
import { ensureCpythonImage, imageMs } from "../setup/derived-images.ts";
import {
  buildFirst,
  fromPypi,
  type Place,
  places,
  startTestService,
  type TestService,
} from "../testing/test-service.ts";

type LanguageProgram = {
  readonly code: string;
  /** How an assertion that fails ends it: error type and exit code. */
  readonly assertion: readonly [type: string, exitCode: number];
  /** How it ends by a limit that its language sets below the job's. */
  readonly memory?: { readonly end: string; readonly words: string };
};

/**
 * A program in each language. The first line of its input says what it does: "add" prints the sum of the other lines,
 * "assert" fails, and "loop", "memory" and "forks" take CPU, memory and processes without end.
 */
const languagePrograms: Readonly<Record<string, LanguageProgram>> = {
  bash: {
    assertion: ["runtime_error", 1],
    code: `read -r mode
case $mode in
  add) sum=0; while read -r n; do sum=$((sum + n)); done; echo $sum ;;
  assert) ((1 + 1 == 3)) || { echo "assertion failed" >&2; exit 1; } ;;
  loop) while :; do :; done ;;
  memory) x=x; while :; do x=$x$x; done ;;
  forks) while :; do sleep 60 & done ;;
esac`,
  },
  c: {
    assertion: ["abort", 134],
    code: `#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  char mode[16];
  long n, sum = 0;
  if (scanf("%15s", mode) != 1) return 1;
  if (!strcmp(mode, "add")) {
    while (scanf("%ld", &n) == 1) sum += n;
    printf("%ld\\n", sum);
  }
  if (!strcmp(mode, "assert")) assert(1 + 1 == 3);
  if (!strcmp(mode, "loop")) for (volatile int i = 0;;) i = 1;
  if (!strcmp(mode, "memory")) for (;;) {
    volatile char *p = malloc(1 << 20);
    for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1;
  }
  if (!strcmp(mode, "forks")) for (;;) fork();
}`,
  },
  cpp: {
    assertion: ["abort", 134],
    code: `#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>
int main() {
  std::string mode;
  std::cin >> mode;
  if (mode == "add") {
    long n, sum = 0;
    while (std::cin >> n) sum += n;
    std::cout << sum << std::endl;
  }
  if (mode == "assert") throw std::logic_error("assertion failed");
  if (mode == "loop") for (volatile int i = 0;;) i = 1;
  if (mode == "memory") {
    std::vector<std::string> all;
    for (;;) all.emplace_back(1 << 20, 'x');
  }
  if (mode == "forks") for (;;) fork();
}`,
  },
  csharp: {
    assertion: ["runtime_error", 1],
    code: `using System;
using System.Collections.Generic;
using System.Diagnostics;
class Program {
  static void Main() {
    switch (Console.ReadLine()) {
      case "add":
        long sum = 0;
        for (string line; (line = Console.ReadLine()) != null;) sum += long.Parse(line);
        Console.WriteLine(sum);
        break;
      case "assert": throw new Exception("assertion failed");
      case "loop": while (true) {}
      case "memory":
        var all = new List<string>();
        while (true) all.Add(new string('x', 1 << 20));
      case "forks":
        while (true) try { Process.Start("sleep", "60"); } catch (Exception) {}
    }
  }
}`,
  },
  go: {
    assertion: ["runtime_error", 2],
    code: `package main

import (
	"fmt"
	"strings"
	"syscall"
)

func main() {
	var mode string
	fmt.Scanln(&mode)
	switch mode {
	case "add":
		sum, n := 0, 0
		for {
			if _, err := fmt.Scan(&n); err != nil {
				break
			}
			sum += n
		}
		fmt.Println(sum)
	case "assert":
		panic("assertion failed")
	case "loop":
		for {
		}
	case "memory":
		var all []string
		for {
			all = append(all, strings.Repeat("x", 1<<20))
		}
	case "forks":
		for {
			syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, nil)
		}
	}
}`,
  },
  java: {
    assertion: ["runtime_error", 1],
    // Its heap may have a quarter of the job's memory.
    memory: { end: "failed runtime_error", words: "OutOfMemoryError" },
    code: `import java.util.*;
public class Main {
  public static void main(String[] args) {
    Scanner in = new Scanner(System.in);
    switch (in.next()) {
      case "add":
        long sum = 0;
        while (in.hasNextLong()) sum += in.nextLong();
        System.out.println(sum);
        break;
      case "assert": throw new AssertionError("1 + 1 is not 3");
      case "loop": while (true) {}
      case "memory":
        List<byte[]> all = new ArrayList<>();
        while (true) all.add(new byte[1 << 20]);
      case "forks":
        while (true) try { new ProcessBuilder("sleep", "60").start(); } catch (java.io.IOException e) {}
    }
  }
}`,
  },
  javascript: {
    assertion: ["runtime_error", 1],
    code: `const [mode, ...lines] = require("node:fs").readFileSync(0, "utf8").trim().split("\\n");
const all = [];
if (mode === "add") console.log(lines.reduce((sum, line) => sum + Number(line), 0));
if (mode === "assert") require("node:assert").equal(1 + 1, 3);
while (mode === "loop");
while (mode === "memory") all.push(Buffer.alloc(1 << 20, 1));
while (mode === "forks") require("node:child_process").spawn("sleep", ["60"]).on("error", () => {});`,
  },
  lua: {
    assertion: ["runtime_error", 1],
    code: `local mode, sum, all = io.read("l"), 0, {}
if mode == "add" then
  for line in io.lines() do sum = sum + math.tointeger(tonumber(line)) end
  print(sum)
end
if mode == "assert" then assert(1 + 1 == 3) end
while mode == "loop" do end
while mode == "memory" do all[#all + 1] = string.rep("x", 1 << 20) .. #all end
while mode == "forks" do all[#all + 1] = io.popen("sleep 60") end`,
  },
  perl: {
    assertion: ["runtime_error", 1],
    code: `chomp(my $mode = <STDIN>);
my ($sum, @all) = 0;
if ($mode eq "add") { $sum += $_ while <STDIN>; print "$sum\\n" }
if ($mode eq "assert") { 1 + 1 == 3 or print(STDERR "assertion failed\\n"), exit 1 }
1 while $mode eq "loop";
push @all, "x" x (1 << 20) . @all while $mode eq "memory";
fork while $mode eq "forks";`,
  },
  php: {
    assertion: ["runtime_error", 255],
    code: `<?php
$mode = trim(fgets(STDIN));
$sum = 0;
if ($mode === "add") {
  while (($line = fgets(STDIN)) !== false) $sum += (int) $line;
  echo "$sum\\n";
}
if ($mode === "assert") throw new Exception("assertion failed");
while ($mode === "loop");
while ($mode === "memory") $all[] = str_repeat("x", 1 << 20);
while ($mode === "forks") @pcntl_fork();`,
  },
  r: {
    assertion: ["runtime_error", 1],
    code: `input <- readLines(file("stdin"))
mode <- input[1]
all <- list()
if (mode == "add") cat(sum(as.numeric(input[-1])), "\\n", sep = "")
if (mode == "assert") stopifnot(1 + 1 == 3)
while (mode == "loop") {}
while (mode == "memory") all[[length(all) + 1]] <- rep(1, 131072)
while (mode == "forks") system("sleep 60", wait = FALSE)`,
  },
  ruby: {
    assertion: ["runtime_error", 1],
    code: `mode, all = gets.chomp, []
puts STDIN.each_line.sum(&:to_i) if mode == "add"
raise "assertion failed" if mode == "assert"
while mode == "loop" do end
while mode == "memory" do all << "x" * (1 << 20) end
while mode == "forks" do fork rescue nil end`,
  },
  rust: {
    assertion: ["runtime_error", 101],
    code: `use std::{hint::black_box, io::{stdin, BufRead}, process::Command};
fn main() {
    let mut lines = stdin().lock().lines().map(|line| line.unwrap());
    match lines.next().unwrap().as_str() {
        "add" => println!("{}", lines.map(|line| line.parse::<i64>().unwrap()).sum::<i64>()),
        "assert" => assert_eq!(1 + 1, 3),
        "loop" => loop { black_box(0); },
        "memory" => { let mut all = vec![]; loop { all.push(black_box(vec![1u8; 1 << 20])) } }
        "forks" => loop { let _ = Command::new("sleep").arg("60").spawn(); },
        _ => {}
    }
}`,
  },
  typescript: {
    assertion: ["runtime_error", 1],
    code: `import assert from "node:assert";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
const [mode, ...lines]: string[] = readFileSync(0, "utf8").trim().split("\\n");
const all: Buffer[] = [];
if (mode === "add") console.log(lines.reduce((sum: number, line: string) => sum + Number(line), 0));
if (mode === "assert") assert.equal(1 + 1, 3);
while (mode === "loop");
while (mode === "memory") all.push(Buffer.alloc(1 << 20, 1));
while (mode === "forks") spawn("sleep", ["60"]).on("error", () => {});`,
  },
};

/** Seconds: emulated machines compile slowly. */
const patience = { compile_timeout: 300, startup_timeout: 600 };

/** C++ that is hostile to its compiler. */
const hostile: Record<string, string> = {
  "takes all memory": `#include "/dev/zero"`,
  "fills the disk": `int numbers[1 << 29] = {1};\nint main() {}`,
  "grows without end": `#define A0 "${"x".repeat(4096)}"
${Array.from({ length: 24 }, (_, n) => `#define A${n + 1} A${n} A${n}`).join("\n")}
const char *text = A24;
int main() {}`,
  "includes itself": `#include __FILE__`,
  "reads what is root's": `#include "/etc/shadow"`,
};

/** An image of the preset `languages`, which agents other than its builder's run. */
let image: string;
let builder: TestService;
beforeAll(async () => {
  const AIRLOCK_JOB_TYPES = JSON.stringify({ languages: { preset: "languages" } });
  builder = await startTestService({ api: { AIRLOCK_JOB_TYPES, AIRLOCK_MAX_IMAGE_BYTES: "0" } });
  await builder.startAgent("agent", fromPypi);
  image = (await buildFirst(builder, "languages")).image_ref;
}, imageMs);
afterAll(() => builder?.[Symbol.asyncDispose]());

/** Each language of the table, from a client's request to the record, in that image. */
describe.each(Object.keys(places) as Place[])("in %s", (place) => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService({
      api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: { base_image: image } }) },
    });
    await service.startAgent("agent", { ...places[place], AIRLOCK_MAX_WORKERS: "2" });
  }, imageMs);
  afterAll(() => service?.[Symbol.asyncDispose]());

  async function run(code: string, more: Record<string, unknown>): Promise<ExecutionRecord> {
    const id = await service.submit(code, {}, { timeout: 60, ...patience, ...more });
    await service.send("GET", `/jobs/${id}/result?wait=true&timeout=300`);
    return service.record(id);
  }

  describe.each(Object.keys(languages))("%s", (language) => {
    const { code, assertion, memory } = languagePrograms[language]!;
    const { compile } = languages[language]!;
    const ways = (mode: string, timeout = 60) =>
      run(code, { language, stdin: `${mode}\n20\n22\n`, timeout });

    test("reads its input", async () => {
      const { status, stdout, stderr, compile: compiled } = await ways("add");
      expect({ status, stdout, stderr }).toEqual({
        status: "succeeded",
        stdout: "42\n",
        stderr: "",
      });
      expect(compiled?.exit_code).toBe(compile && 0);
    });

    test("fails an assertion", async () => {
      const { error, exit_code, stdout, stderr } = await ways("assert");
      expect([error?.type, exit_code]).toEqual(assertion);
      expect(stdout + stderr).toMatch(/assert|1 \+ 1/i);
    });

    test("is no program", async () => {
      const head = language === "php" ? "<?php " : "";
      const { status, error, stdout } = await run(`${head}this is no program (`, { language });
      const type = compile ? "compile_error" : "runtime_error";
      expect({ status, type: error?.type }).toEqual({ status: "failed", type });
      expect(stdout).not.toContain("42");
    });

    test("never ends", async () => {
      expect((await ways("loop", 2)).status).toBe("timeout");
    });

    test("takes all memory", async () => {
      const { status, error, stderr } = await ways("memory");
      expect(`${status} ${error?.type}`).toBe(memory === undefined ? "oom oom" : memory.end);
      expect(stderr).toContain(memory?.words ?? "");
    });

    test("forks without end, and the next job runs well", async () => {
      const { status, error } = await ways("forks", 3);
      const ended = `${status} ${error?.type}`;
      expect(["timeout execution_timeout", "failed runtime_error", "oom oom"]).toContain(ended);
      expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
    });
  });

  test.each(Object.entries(hostile))("a source that %s", async (_what, code) => {
    const { status, error, compile } = await run(code, { language: "cpp", compile_timeout: 30 });
    expect(["failed compile_error", "oom oom"]).toContain(`${status} ${error?.type}`);
    expect(compile?.stderr ?? "").not.toContain("root:");
    expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
  });
});

describe("graders", () => {
  type Program = {
    /** The code in the style of data sets: a function, then asserts. `SUM` is its one expression. */
    readonly code: string;
    /** What SandboxFusion runs on the file `main`, in its working folder. */
    readonly bare: string;
    readonly file: string;
    /** What its variables begin with. */
    readonly sigil?: string;
  };

  /** Languages of MultiPL-E, by SandboxFusion's names. Source of the commands: its sandbox/runners. */
  const programs: Readonly<Record<string, Program>> = {
    bash: {
      file: "main.sh",
      bare: "bash main.sh",
      code: `add() { echo $((SUM)); }
set -e
test "$(a=2 b=3 add)" = 5`,
    },
    cpp: {
      file: "main.cpp",
      bare: "g++ -std=c++17 main.cpp -o test -lpthread && ./test",
      code: `#include <bits/stdc++.h>
long add(long a, long b) { return SUM; }
int main() { assert(add(2, 3) == 5); }`,
    },
    csharp: {
      file: "main.cs",
      // .NET ends the program at a failed assertion; Mono only tells of it.
      bare: "mcs -d:DEBUG main.cs && { MONO_TRACE_LISTENER=Console.Error mono main.exe >said 2>&1 && ! grep -q Fail said; }",
      code: `using System.Diagnostics;
class Problem {
  static long Add(long a, long b) { return SUM; }
  static void Main() { Debug.Assert(Add(2, 3) == 5); }
}`,
    },
    go_test: {
      file: "main_test.go",
      bare: "go test main_test.go",
      code: `package main

import "testing"

func add(a, b int) int { return SUM }
func TestAdd(t *testing.T) {
	if add(2, 3) != 5 {
		t.Fatal("wrong")
	}
}`,
    },
    java: {
      file: "Main.java",
      bare: "javac -cp . Main.java && java -cp . -ea Main",
      code: `class Main {
  static long add(long a, long b) { return SUM; }
  public static void main(String[] args) { assert add(2, 3) == 5; }
}`,
    },
    lua: {
      file: "main.lua",
      bare: "lua main.lua",
      code: `local function add(a, b) return SUM end
assert(add(2, 3) == 5)`,
    },
    nodejs: {
      file: "main.js",
      bare: "node main.js",
      code: `const add = (a, b) => SUM;
require("node:assert").deepEqual(add(2, 3), 5);`,
    },
    perl: {
      file: "main.pl",
      bare: "perl main.pl",
      sigil: "$",
      code: `sub add { my ($a, $b) = @_; return SUM }
add(2, 3) == 5 or exit 1;`,
    },
    php: {
      file: "main.php",
      bare: "sed -i '1i<?php' main.php; php -f main.php",
      sigil: "$",
      code: `function add($a, $b) { return SUM; }
if (add(2, 3) !== 5) { throw new Exception("wrong"); }`,
    },
    R: {
      file: "main.R",
      bare: "Rscript main.R",
      code: `add <- function(a, b) { SUM }
if (!identical(add(2, 3), 5)) quit("no", 1)`,
    },
    ruby: {
      file: "main.rb",
      bare: "ruby main.rb",
      code: `def add(a, b) = SUM
raise "wrong" unless add(2, 3) == 5`,
    },
    rust: {
      file: "main.rs",
      bare: "rustc main.rs -o test && ./test",
      code: `fn add(a: i32, b: i32) -> i32 { SUM }
fn main() { debug_assert_eq!(add(2, 3), 5); }`,
    },
    ts: {
      file: "main.ts",
      bare: "node --experimental-transform-types main.ts",
      code: `import assert from "node:assert";
enum Kind { Sum = 5 }
const add = (a: number, b: number): number => SUM;
assert.deepEqual(add(2, 3), Kind.Sum);`,
    },
  };
  const sums: Readonly<Record<string, string>> = {
    right: "a + b",
    wrong: "a - b",
    "not a program": "a + (",
  };

  const codeOf = ({ code, sigil = "" }: Program, sum: string): string =>
    code.replace("SUM", () => sum.replaceAll(/[ab]/g, (name) => sigil + name));

  let service: TestService;

  beforeAll(async () => {
    const key = "lab-key-0123456789abcdef";
    const compat = { AIRLOCK_COMPAT: "sandbox-fusion", AIRLOCK_COMPAT_KEY: key };
    const AIRLOCK_JOB_TYPES = JSON.stringify({
      default: { base_image: image, memory_limit: "1g" },
    });
    service = await startTestService({ key, api: { ...compat, AIRLOCK_JOB_TYPES } });
    await service.startAgent("agent", { AIRLOCK_MAX_WORKERS: "2" });
  }, imageMs);
  afterAll(() => service?.[Symbol.asyncDispose]());

  async function verdictHere(fields: object): Promise<{ status: string; files: object }> {
    const answer = await fetch(`${service.url}/compat/sandbox-fusion/run_code`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ compile_timeout: 120, run_timeout: 60, ...fields }),
    });
    return (await answer.json()) as { status: string; files: object };
  }

  /** Whether a command ends well in a container that has nothing of this service. */
  function endsWellBare({ file, bare }: Program, code: string): Promise<boolean> {
    const folder = mkdtempSync(join(tmpdir(), "airlock-bare-"));
    writeFileSync(join(folder, file), code);
    const script = `cp -r /given /tmp/work && cd /tmp/work && ${bare}`;
    const args = ["run", "--rm", "-v", `${folder}:/given:ro`, image, "bash", "-c", script];
    return new Promise((resolve) => {
      execFile("docker", args, (error) => {
        rmSync(folder, { recursive: true });
        resolve(error === null);
      });
    });
  }

  test.each(
    Object.keys(programs).flatMap((language) => Object.keys(sums).map((sum) => [language, sum])),
  )("%s: a program that is %s gets the verdict of a bare run", async (language, sum) => {
    const program = programs[language]!;
    const code = codeOf(program, sums[sum]!);
    const isRight = await endsWellBare(program, code);
    expect(isRight).toBe(sum === "right");
    expect(await verdictHere({ language, code })).toMatchObject({
      status: isRight ? "Success" : "Failed",
    });
  });

  test.each([
    ["rust", "fn main() { let n = std::env::args().count() as u8; let _ = 255u8 + n; }"],
    ["java", "class Main { public static void main(String[] a) { assert a.length > 0 : 1; } }"],
    [
      "csharp",
      'class P { static void Main() { System.Diagnostics.Debug.Assert(false, "no"); System.Console.Write(1); } }',
    ],
  ])("%s keeps the checks of a build for tests", async (language, code) => {
    const { status } = await verdictHere({ language, code });
    expect(status).toBe("Failed");
    // Rust with `language` is built for speed.
    const { error } = await service.execute(code, { language, compile_timeout: 120 });
    expect(error === null).toBe(language === "rust");
  });

  test("files of a compiled program are in its folder, and what it writes comes back", async () => {
    const asked = {
      language: "cpp",
      code: `#include "in/sum.h"
#include <fstream>
int main() { std::ofstream("out.txt") << add(2, 3); }`,
      files: { "in/sum.h": btoa("inline int add(int a, int b) { return a + b; }") },
      fetch_files: ["./out.txt", "/output/in/sum.h", "../etc/passwd"],
    };
    expect(await verdictHere(asked)).toMatchObject({
      status: "Success",
      files: { "./out.txt": btoa("5"), "/output/in/sum.h": asked.files["in/sum.h"] },
    });
  });

  test("go is compiled within the protocol's own limit where the image has compiled its library", async () => {
    const code = `package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(1) }`;
    expect(await verdictHere({ language: "go", code, compile_timeout: 10 })).toMatchObject({
      status: "Success",
    });
  });
});

/** Test suites that other people wrote, with the list of what is expected to fail and why. */
const run = promisify(execFile);

describe("CPython's own tests", () => {
  /** Runs a module of them and prints how each of its tests ended; it knows nothing of this service. */
  const driver = (
    module: string,
  ) => `import json, os, re, subprocess, sys, tempfile, xml.etree.ElementTree as xml
module = ${JSON.stringify(module)}
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/result.xml"
    command = [sys.executable, "-m", "test", "--timeout", "250", "--junit-xml", path, "--tempdir", folder, module]
    said = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told = {"exit": said.returncode}
    if os.path.exists(path):
        for case in xml.parse(path).iter("testcase"):
            ends = {child.tag for child in case} & {"failure", "error", "skipped"}
            # Names of subtests may have addresses of objects.
            name = re.sub(" at 0x[0-9a-f]+", "", case.get("name"))
            told[name] = ends.pop() if ends else "passed"
print(json.dumps(told))
`;
  type Told = Record<string, string | number>;

  /** What ends in another way than in a bare container, and why. */
  const differing: readonly (readonly [test: RegExp, reason: string])[] = [
    [/^test_(ftplib|logging)\.\w*IPv6\w*\./, "the bare container has no IPv6 loopback"],
    [
      /^test_asyncio\..*(ipv6|dual_stack|no_matching_family)/,
      "the bare container has no IPv6 loopback",
    ],
    [/^test_largefile\b/, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [/^test_mmap\.LargeMmapTests\./, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [
      /^test_io\..*test_large_file_ops/,
      "a file may be as large as the memory limit (RLIMIT_FSIZE)",
    ],
    [/^test_resource\..*fsize/, "a file may be as large as the memory limit (RLIMIT_FSIZE)"],
    [/^test_fcntl\..*fcntl_64_bit/, "F_NOTIFY is refused"],
    [
      /^test_(os\.CPUCountTests\.|cmd_line\..*cpu_count_default)/,
      "PYTHON_CPU_COUNT says how many processors the job has",
    ],
    [
      /^test_cmd_line\..*non_interactive_output_buffering/,
      "PYTHONUNBUFFERED is set, so that output is seen as it is written",
    ],
  ];

  /** CPYTHON_MODULES runs those that match it; by default, all. */
  const only = new RegExp(process.env["CPYTHON_MODULES"] ?? "");
  /**
   * Modules that test other programs, or take longer than all others together; and test_socket, whose report breaks off
   * at its first error in a fork (regrtest itself fails), so that its tests cannot be compared one by one.
   */
  const leftOut =
    /test_(gdb|idle|tkinter|ttk|tools|multiprocessing_(spawn|forkserver)|zipfile64|socket)\b/;

  let image: string;
  let own: TestService;
  let modules: string[];
  beforeAll(async () => {
    image = await ensureCpythonImage(rawEngine);
    const jobType = { base_image: image, memory_limit: "2g", pids: 512, loopback: "full" };
    own = await startTestService({
      api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: jobType }) },
    });
    const backend = { AIRLOCK_CONTAINER_BACKEND: "zygote", AIRLOCK_MAX_WORKERS: "2" };
    await own.startAgent("agent", backend);
    const list = ["run", "--rm", image, "python3", "-m", "test", "--list-tests"];
    const listed = (await run("docker", list)).stdout.trim().split(/\s+/);
    modules = listed.filter((name) => !leftOut.test(name) && only.test(name));
  }, imageMs);
  afterAll(() => own?.[Symbol.asyncDispose]());

  async function inFork(module: string): Promise<Told> {
    const id = await own.submit(driver(module), {}, { timeout: 400 });
    await own.send("GET", `/jobs/${id}/result?wait=true&timeout=600`);
    return JSON.parse((await own.record(id)).stdout || "{}") as Told;
  }

  async function bare(module: string): Promise<Told> {
    const limits =
      "--rm --network none --user 1000:1000 --read-only --tmpfs /tmp:exec --env HOME=/tmp --memory 2g --pids-limit 512 --cap-drop ALL";
    const args = ["run", ...limits.split(" "), image, "python3", "-c", driver(module)];
    const { stdout } = await run("docker", args, { maxBuffer: 1 << 26 });
    return JSON.parse(stdout) as Told;
  }

  // A row that fails is tried again alone.
  const parts = Array.from({ length: 8 }, (_, n) => n + 1);

  test.each(parts)(
    `end in forks as in a bare container, but for what is listed: part %i of ${parts.length}`,
    async (part) => {
      const size = Math.ceil(modules.length / parts.length);
      const some = modules.slice((part - 1) * size, part * size);
      const [all, others] = [new Set<string>(), new Set<string>()];
      const waiting = some.values();
      const work = async (): Promise<void> => {
        for (const module of waiting) {
          const [here, there] = [await inFork(module), await bare(module)];
          for (const test of Object.keys({ ...here, ...there })) {
            // Of a module without tests, such as one of Windows, the status says how it ended.
            if (test === "exit" && Object.keys(here).length > 1) continue;
            const name = (test === "exit" ? module : test).replace(/^test\./, "");
            all.add(name);
            if (here[test] !== there[test]) {
              others.add(`${name}: ${here[test]}, bare ${there[test]}`);
            }
          }
        }
      };
      await Promise.all([work(), work()]);
      console.log(`part ${part}: ${some.length} modules, ${all.size} tests`);
      const unlisted = [...others].filter(
        (test) => !differing.some(([listed]) => listed.test(test)),
      );
      expect(unlisted.sort()).toEqual([]);
      const passing = differing.filter(
        ([listed]) =>
          [...all].some((test) => listed.test(test)) &&
          ![...others].some((test) => listed.test(test)),
      );
      expect(passing).toEqual([]);
    },
    3_600_000,
  );
});
