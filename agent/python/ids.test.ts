import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, sources } from "./program.ts";

const configured = [0x7000_0000, 65_536];

/** The ids of zygotes in a container with this /proc/self/uid_map. */
function idsWith(map: string): number[] {
  const program = `${loadModules(sources(["ids"]))}
import ids
print(ids.fit({"ids": ${JSON.stringify(configured)}}, 0)["ids"])`;
  const printed = execFileSync("python3", ["-I", "-S", "-c", program], {
    input: map,
    encoding: "utf8",
    stdio: ["pipe", "pipe", "pipe"],
  });
  return printed.match(/\d+/g)!.map(Number);
}

test("zygotes have the configured ids where the container has those of the host", () => {
  expect(idsWith("         0          0 4294967295\n")).toEqual(configured);
});

test("under a rootless engine they have ids that /etc/subuid gives its user", () => {
  const rootless = "         0       1000          1\n         1     100000      65536\n";
  expect(idsWith(rootless)).toEqual([1024, 64_000]);
});

test("a user without enough ids is told so", () => {
  expect(() => idsWith("0 1000 1\n1 100000 1000\n")).toThrow(/fewer than 65,536 ids.*subuid/);
});
