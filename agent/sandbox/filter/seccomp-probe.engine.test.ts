import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ensureScienceImage } from "../../../scripts/setup/images/science-image.ts";
import { type CallNumbers, denied } from "../testing/denied-calls.ts";
import { backend, sandboxRuntime as runtime } from "../testing/backend.ts";
import { testEngine } from "../testing/engine.ts";
import { rawEngine } from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";
import type { SandboxSpec } from "../spec.ts";

type Call = readonly [numbers: CallNumbers, args: readonly (number | string)[]];

const place = await testEngine();

const program = (name: string): string =>
  readFileSync(new URL(`../testing/${name}.py`, import.meta.url), "utf8");

/** What each call comes to in a container: an errno's name, "allowed" or "killed by" a signal. */
async function probe(calls: Record<string, Call>, spec: Partial<SandboxSpec> = {}) {
  const settings = { spec, job: { inputJson: JSON.stringify({ calls }) } };
  const { out, err, end } = await runCode(place, program("seccomp-probe"), settings);
  expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
  return JSON.parse(out) as Record<string, string>;
}

const socket: CallNumbers = [41, 198];
const socketpair: CallNumbers = [53, 199];
const noDescriptor = 1000;
const families = {
  AF_UNIX: 1,
  AF_INET: 2,
  AF_NETLINK: 16,
  AF_PACKET: 17,
  AF_RDS: 21,
  AF_ALG: 38,
  AF_VSOCK: 40,
};
const [stream, datagram, raw, seqpacket] = [1, 2, 3, 5];
const setsockopt: CallNumbers = [54, 208];
const prctl: CallNumbers = [157, 167];
const mmap: CallNumbers = [9, 222];
const memfd: CallNumbers = [319, 279];
const shmget: CallNumbers = [29, 194];
const clone: CallNumbers = [56, 220];
const clone3: CallNumbers = [435, 435];
const seccomp: CallNumbers = [317, 277];
const high = 2 ** 32;
const nothing = [0, 0, 0, 0, 0, 0];
const sigsys = 31;

describe("the filter", () => {
  test.each(Object.entries(denied))("denies what %s", async (_why, calls) => {
    const outcomes = await probe(
      Object.fromEntries(Object.entries(calls).map(([name, at]) => [name, [at, nothing]])),
    );
    expect(Object.entries(outcomes).filter(([, outcome]) => outcome !== "EPERM")).toEqual([]);
  });

  test("denies sockets other than local ones and those of the internet", async () => {
    const { AF_INET, AF_NETLINK, AF_PACKET, AF_RDS, AF_ALG, AF_VSOCK } = families;
    const outcomes = await probe({
      alg: [socket, [AF_ALG, seqpacket, 0]],
      vsock: [socket, [AF_VSOCK, stream, 0]],
      packet: [socket, [AF_PACKET, raw, 0]],
      rds: [socket, [AF_RDS, seqpacket, 0]],
      netfilter: [socket, [AF_NETLINK, raw, 12]],
      "crypto netlink": [socket, [AF_NETLINK, raw, 21]],
      sctp: [socket, [AF_INET, stream, 132]],
      "a pair on the internet": [socketpair, [AF_INET, stream, 0, 0]],
      "alg, with bits the kernel does not see": [socket, [AF_ALG + high, seqpacket, 0]],
    });
    expect([...new Set(Object.values(outcomes))]).toEqual(["EPERM"]);
  });

  test.each([
    ["none", ["EACCES", "EACCES", "EACCES", "EPERM", "allowed"]],
    ["tcp", ["allowed", "EACCES", "EACCES", "EPERM", "allowed"]],
    ["full", ["allowed", "allowed", "EPERM", "allowed", "allowed"]],
  ] as const)("with the loopback %s allows these sockets", async (loopback, expected) => {
    const { AF_UNIX, AF_INET, AF_NETLINK } = families;
    const outcomes = await probe(
      {
        tcp: [socket, [AF_INET, stream, 0]],
        udp: [socket, [AF_INET, datagram, 17]],
        "raw ip": [socket, [AF_INET, raw, 1]],
        interfaces: [socket, [AF_NETLINK, raw, 0]],
        unix: [socket, [AF_UNIX, datagram, 0]],
      },
      { loopback },
    );
    expect(Object.values(outcomes)).toEqual(expected);
  });

  test("denies filters, of calls and of sockets, and takes sizes of buffers without using them", async () => {
    const outcomes = await probe({
      PR_SET_SECCOMP: [prctl, [22, 2, 0]],
      seccomp: [seccomp, [1, 0, 0]],
      SO_ATTACH_FILTER: [setsockopt, [noDescriptor, 1, 26, 0, 0]],
      SO_ATTACH_REUSEPORT_CBPF: [setsockopt, [noDescriptor, 1, 51, 0, 0]],
      SO_RCVBUF: [setsockopt, [noDescriptor, 1, 8, 0, 0]],
      SO_REUSEADDR: [setsockopt, [noDescriptor, 1, 2, 0, 0]],
    });
    const denials = Array<string>(4).fill("EPERM");
    expect(Object.values(outcomes)).toEqual([...denials, "allowed", "EBADF"]);
  });

  test("denies leases, owners and locks of open file descriptions, and allows a process its own locks", async () => {
    const fcntl = [72, 25] as const;
    const outcomes = await probe({
      F_SETLEASE: [fcntl, [noDescriptor, 1024, 0]],
      F_SETOWN: [fcntl, [noDescriptor, 8, 0]],
      F_SETOWN_EX: [fcntl, [noDescriptor, 15, 0]],
      F_OFD_SETLK: [fcntl, [noDescriptor, 37, 0]],
      F_OFD_SETLKW: [fcntl, [noDescriptor, 38, 0]],
      F_SETLK: [fcntl, [noDescriptor, 6, 0]],
    });
    expect(Object.values(outcomes)).toEqual([...Array<string>(5).fill("EPERM"), "EBADF"]);
  });

  test("hostile 53: the huge pages that a host reserves", async () => {
    const outcomes = await probe({
      mmap: [mmap, [0, 4096, 3, 0x22 | 0x4_0000, -1, 0]],
      memfd_create: [memfd, ["x", 4]],
      shmget: [shmget, [0, 4096, 0x800 | 0o1600]],
      "memfd_create without": [memfd, ["x", 0]],
    });
    expect(Object.values(outcomes)).toEqual(["EPERM", "EPERM", "EPERM", "allowed"]);
  });

  test("denies clone with a new namespace of any kind, and answers clone3 as if it did not exist", async () => {
    const kinds = [
      0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000,
    ];
    const flags = kinds.flatMap((flag) => [flag, flag + high]);
    const calls = flags.map((flag): [string, Call] => [
      flag.toString(16),
      [clone, [flag + 17, 0, 0, 0, 0]],
    ]);
    const outcomes = await probe(Object.fromEntries(calls));
    expect(Object.values(outcomes)).toEqual(calls.map(() => "EPERM"));
    expect(await probe({ clone3: [clone3, [0, 0]] })).toEqual({ clone3: "ENOSYS" });
  });

  test("denies every personality except the default", async () => {
    const numbers: CallNumbers = [135, 92];
    const outcomes = await probe({
      ask: [numbers, [0xffff_ffff]],
      default: [numbers, [0]],
      "no address randomisation": [numbers, [0x4_0000]],
      "executable data": [numbers, [0x40_0000]],
      "pages at zero": [numbers, [0x10_0000]],
    });
    expect(Object.values(outcomes)).toEqual(["allowed", "allowed", "EPERM", "EPERM", "EPERM"]);
  });

  test("kills a process that makes calls of another width", async () => {
    const outcomes = await probe({ "getpid of x32": [[0x4000_0000 + 39, null], []] });
    for (const outcome of Object.values(outcomes)) expect(outcome).toBe(`killed by ${sigsys}`);
  });

  test("is what denies them: without it the kernel gives other answers", async () => {
    const names = ["kcmp", "keyctl", "memfd_secret", "mq_unlink", "process_vm_readv", "unshare"];
    const all = Object.assign({}, ...Object.values(denied)) as Record<string, CallNumbers>;
    const calls = Object.fromEntries(
      names.map((name): [string, Call] => [name, [all[name]!, nothing]]),
    );
    expect(Object.values(await probe(calls))).toEqual(names.map(() => "EPERM"));
    // The mother has a filter of its own, under that of each job.
    if (backend === "zygote") return;
    expect(Object.values(await probe(calls, { seccomp: false }))).not.toContain("EPERM");
  });
});

test(`${runtime} allows what Python programs need`, async () => {
  const { out, err, end } = await runCode(place, program("needs"), { spec: { runtime } });
  expect({ failed: JSON.parse(out) as unknown, err, end }).toEqual({
    failed: {
      // This gVisor has no copy_file_range; the standard library does without.
      ...(runtime === "runsc" && { copying: "OSError(38, 'Function not implemented')" }),
      // Forks share the files of their image: see hostile 55.
      ...(backend === "zygote" && { inotify: "AssertionError()" }),
    },
    err: "",
    end: "succeeded - 0",
  });
});

test(`${runtime} allows what numpy and pandas need`, async () => {
  const image = await ensureScienceImage(rawEngine);
  const { out, err, end } = await runCode(place, program("science-needs"), {
    spec: { image, runtime, cpus: 2 },
  });
  expect({ failed: JSON.parse(out) as unknown, err, end }).toEqual({
    failed: {},
    err: "",
    end: "succeeded - 0",
  });
});
