import { expect, test } from "vitest";
import { makeChecks } from "./checks.ts";

test("each check prints one line, a failure its reason too, and all are counted", async () => {
  const lines: string[] = [];
  const { check, section, summary } = makeChecks((line) => lines.push(line));
  await section("docker", async () => {
    await check("a job", async () => {});
    await check("another", () => Promise.reject(new Error("it is red\nall over")));
  });
  await section("podman", () => Promise.reject(new Error("no socket")));
  expect(lines).toEqual([
    "passed  docker: a job (0 s)",
    "failed  docker: another (0 s)\n        it is red\n        all over",
    "failed  podman: its set-up (0 s)\n        no socket",
  ]);
  expect(summary()).toEqual({ passed: 1, failed: 2 });
});
