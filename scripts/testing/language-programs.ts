export type LanguageProgram = {
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
export const programs: Readonly<Record<string, LanguageProgram>> = {
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
