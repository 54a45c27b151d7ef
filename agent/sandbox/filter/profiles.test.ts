import { describe, expect, test } from "vitest";
import type { Loopback } from "../../../shared/wire/job-type.ts";
import { allowed, guarded, motherProfile, seccompProfile, zygoteProfile } from "./profiles.ts";
import { sockets } from "./socket-rules.ts";
import { denied } from "../testing/denied-calls.ts";

const allowedNames = Object.values(allowed).flat();
const guardedNames = new Set([...guarded, ...sockets.tcp].map(({ name }) => name));
const deniedNames = Object.values(denied).flatMap((calls) => Object.keys(calls));

test("a call that is not listed fails", () => {
  expect(seccompProfile()).toMatchObject({ defaultAction: "SCMP_ACT_ERRNO" });
});

test("32-bit calls are denied", () => {
  expect(seccompProfile().archMap).toEqual([
    { architecture: "SCMP_ARCH_X86_64", subArchitectures: [] },
    { architecture: "SCMP_ARCH_AARCH64", subArchitectures: [] },
  ]);
});

test("each call is listed once", () => {
  const names = [...allowedNames, ...guardedNames, "clone3"];
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  expect(names.every((name) => /^[a-z][a-z0-9_]+$/.test(name))).toBe(true);
});

test("no call is both denied and allowed", () => {
  expect(deniedNames.filter((name) => allowedNames.includes(name))).toEqual([]);
  expect(deniedNames.filter((name) => guardedNames.has(name))).toEqual([]);
});

test("a call with a condition on its arguments is allowed with those arguments only", () => {
  const rules = seccompProfile().syscalls.filter(({ names }) =>
    names.some((name) => guardedNames.has(name)),
  );
  expect(rules).toHaveLength(guarded.length + sockets.tcp.length);
  for (const rule of rules) expect(rule).toHaveProperty("args.0.op", "SCMP_CMP_MASKED_EQ");
});

test("the profile is small enough for a request", () => {
  expect(JSON.stringify(seccompProfile()).length).toBeLessThan(12_000);
});

describe("what starts jobs by forking", () => {
  const own = (profile: typeof seccompProfile, loopback: Loopback = "tcp") => {
    const code = seccompProfile(loopback).syscalls.map((rule) => JSON.stringify(rule));
    const [first, ...others] = profile().syscalls;
    return {
      allowed: first!.names.filter((name) => !allowedNames.includes(name)),
      guarded: others
        .filter((rule) => !code.includes(JSON.stringify(rule)))
        .map(
          ({ names: [name], args }) =>
            `${name} ${args!.map(({ value, valueTwo, op }) => `${op} ${value.toString(16)} ${valueTwo}`).join()}`,
        ),
    };
  };
  const forJobs = ["clone SCMP_CMP_EQ 78020011 0", "unshare SCMP_CMP_EQ 2000000 0"];

  test("a zygote may make a job's namespaces, mounts and filter besides", () => {
    expect(own(zygoteProfile)).toEqual({
      allowed: ["mount", "pivot_root", "seccomp", "umount2"],
      guarded: forJobs,
    });
  });

  test("a mother may make the namespaces of a zygote besides", () => {
    expect(own(motherProfile, "full")).toEqual({
      allowed: ["mount", "pivot_root", "seccomp", "sethostname", "umount2"],
      guarded: [
        ...forJobs,
        "unshare SCMP_CMP_EQ 20000 0",
        "unshare SCMP_CMP_EQ 7c020000 0",
        "keyctl SCMP_CMP_MASKED_EQ ffffffff 1",
      ],
    });
  });
});
