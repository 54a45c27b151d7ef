import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execFile } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rawEngine } from "../../agent/sandbox/testing/raw-engine.ts";
import { ensureLanguagesImage, imageMs } from "../setup/images/lab-images.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

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
let image: string;

beforeAll(async () => {
  image = await ensureLanguagesImage(rawEngine);
  const key = "lab-key-0123456789abcdef";
  const compat = { AIRLOCK_COMPAT: "sandbox-fusion", AIRLOCK_COMPAT_KEY: key };
  const AIRLOCK_JOB_TYPES = JSON.stringify({ default: { base_image: image, memory_limit: "1g" } });
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
