import { execFileSync } from "node:child_process";
import { globSync } from "node:fs";
import { basename } from "node:path";
import { expect, test } from "vitest";
import { switchDecoder } from "../sandbox/frames.ts";
import { loadModules, programs, source, sources } from "./program.ts";

const modules = sources(programs.mother);

function saidBy(probe: string): string {
  const program = loadModules({ ...modules, probe });
  return execFileSync("python3", ["-I", "-c", program], { encoding: "utf8", timeout: 20_000 });
}

/** The mother's loop alone: of two pipes that can be read, the first to be handled closes the other. */
const loop = `
import os, mother
mother.open_groups = lambda: None
mother.begin = lambda settings: None
loop = mother.Mother({"slots": 1})
loop.put_json = lambda *_: None
loop.forget(0)
pipes = [os.pipe(), os.pipe()]

def replace(own):
    """A job ends, and a zygote begins in the same turn, with a descriptor that the job had."""
    (other,) = [read for read, _ in pipes if read != own]
    loop.forget(own)
    loop.forget(other)
    os.close(other)
    read, _ = os.pipe()
    print("the same number:", read == other)
    loop.handle(read, lambda: print("an event of the one before"))
    loop.handle(last, loop_ends)

def loop_ends():
    raise SystemExit(0)

last, write = os.pipe()
os.write(write, b"x")
for read, write in pipes:
    loop.handle(read, lambda read=read: replace(read))
    os.write(write, b"x")
loop.run()
`;

test("an event of a descriptor that has just been closed reaches no other of the same number", () => {
  expect(saidBy(loop)).toBe("the same number: True\n");
});

/** What the mother's end of the stream writes to its stdout while `what` runs. */
function written(what: string) {
  const probe = `
import os, mother
out = mother.Switch(0, 1)
${what}
while not out.empty:
    out.write()`;
  const program = loadModules({ ...modules, probe });
  const bytes = execFileSync("python3", ["-I", "-c", program], { maxBuffer: 2 ** 26 });
  return switchDecoder()(bytes).map(({ number, type, payload }) => [number, type, payload.length]);
}

test("control frames overtake data, and the last frame of a job does not", () => {
  const what = `
out.put_last(1, b"D", b"x" * 32768)
out.put_last(2, b"D", b"y" * 10)
out.put_last(1, b"G", b"{}")
out.put(3, b"C", b"1234")`;
  expect(written(what)).toEqual([
    [3, "C", 4],
    [1, "D", 32_768],
    [2, "D", 10],
    [1, "G", 2],
  ]);
});

test("its pipe takes all that it holds for a job, not a page at a time", () => {
  const probe = `
import fcntl, os, mother
F_GETPIPE_SZ = 1032
reader, writer = os.pipe()
mother.Switch(reader, writer)
print(fcntl.fcntl(writer, F_GETPIPE_SZ) > mother.WINDOW)`;
  expect(saidBy(probe)).toBe("True\n");
});

test("it is full before it holds much, and never waits for its reader", () => {
  const what = `
count = 0
while not out.full:
    out.put_last(1, b"D", b"x" * 32768)
    count += 1
assert count < 20, count`;
  expect(written(what).length).toBeGreaterThan(10);
});

/** A mother that only remembers what was asked of it. A birth takes as long as the test wants, and has this last step. */
const birthWith = (lastStep: string): string => `
import os, select, types, birth
birth.ROOTFS = "/"
waits, go_on = os.pipe()
until_the_end, end = os.pipe()
def become_zygote(settings, order, control, output, tell, hold):
    os.read(waits, 1)
    os.close(end)
    ${lastStep}
    os._exit(3)
birth.become_zygote = become_zygote
handlers, said = {}, []
mother = types.SimpleNamespace(
    settings={"ids": (0, 1)}, zygotes={}, drop_groups=lambda groups: None,
    handle=lambda fd, handler: handlers.update({fd: handler}), forget=lambda fd: handlers.pop(fd, None),
    groups=types.SimpleNamespace(make=lambda name, limits: [], place=lambda groups, pid: None),
    switch=types.SimpleNamespace(put=lambda number, kind, payload: said.append(kind)))
order = {"root": "tmp", "memory": 1, "pids": 1, "cpus": 1}
mother.zygotes[1] = birth.Zygote(mother, 1, order)
print("other jobs go on while it starts:", len(handlers), said)
os.write(go_on, b"x")
while handlers:
    for fd in select.select(list(handlers), [], [])[0]:
        if fd in handlers:
            handlers[fd]()
print("its end is told:", said, mother.zygotes)
`;

test.each([
  ["the mother waits for no step of a zygote's start", "pass"],
  [
    "a zygote of which the mother does not learn the number does not stay",
    "os.fork() or (os.close(tell), os.read(until_the_end, 1))",
  ],
])("%s", (_what, lastStep) => {
  const said = saidBy(birthWith(lastStep));
  expect(said).toBe("other jobs go on while it starts: 3 []\nits end is told: [b'N'] {}\n");
});

/** What Python code finds out about an Outbox whose clock it sets. */
function told(what: string): unknown {
  const probe = `
import json, os, sys
import link
class clock:
    now = 100.0
    def monotonic():
        return clock.now
link.time = clock
outbox = link.Outbox(os.open(os.devnull, os.O_WRONLY))
told = []
${what}
sys.stdout.write(json.dumps(told))`;
  const program = loadModules({ ...sources(["link"]), probe });
  return JSON.parse(execFileSync("python3", ["-I", "-S", "-c", program], { encoding: "utf8" }));
}

test("a patient outbox holds small data for a moment", () => {
  const what = `
outbox.patient = True
outbox.put(b"O", b"hello")
told.append(round(outbox.delay_ms))
clock.now += 0.004
outbox.put(b"O", b"more")
told.append(round(outbox.delay_ms))
clock.now += 0.004
told.append(round(outbox.delay_ms))
outbox.write()
told.append(outbox.empty)
outbox.put(b"O", b"again")
told.append(round(outbox.delay_ms))`;
  expect(told(what)).toEqual([5, 1, 0, true, 5]);
});

test("large data goes at once, and so does all data when the outbox is not patient", () => {
  const what = `
outbox.put(b"O", b"hello")
told.append(outbox.delay_ms)
outbox.patient = True
outbox.put(b"O", b"x" * 65536)
told.append(outbox.delay_ms)`;
  expect(told(what)).toEqual([0, 0]);
});

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

/** How the first line of a file names the process that runs a program, and those that it forks or starts. */
const processes: Record<keyof typeof programs, readonly string[]> = {
  mother: ["the mother", "its child"],
  zygote: ["a zygote", "PID 1 of a forked sandbox", "the code's interpreter", "the collector"],
  pid1: ["PID 1 of a sandbox", "the code's interpreter", "the collector"],
  packages: ["PID 1"],
  installer: ["the installer"],
  unpacker: ["the unpacker"],
};

const kinds = Object.keys(programs) as (keyof typeof programs)[];
const moduleNames = globSync("*.py", { cwd: import.meta.dirname }).map((file) =>
  basename(file, ".py"),
);

/** What the first line says of where the module runs; it also says as whom, and from when to when. */
function saidOf(module: string): string[] {
  const [first = ""] = source(module).split("\n");
  const said = /^(?:"""|# )Runs in (.+?), as .+?, from .+ to .+\.$/.exec(first)?.[1] ?? first;
  return said.split(/, | and (?:in )?/);
}

/** PID 1 of a fork is that of a sandbox too, and what both kinds run says so shortly. */
const isOf = (kind: keyof typeof programs, said: string): boolean =>
  processes[kind].some((process) => process === said || process.startsWith(`${said} of `)) ||
  (kind === "zygote" && said === "PID 1 of a sandbox");

test.each(moduleNames)(
  "the first line of %s names processes of each program that has it",
  (module) => {
    const said = saidOf(module);
    const having = kinds.filter((kind) => programs[kind].some((each) => each === module));
    // pip, which PID 1 starts, gets its text alone.
    const isPip = having.length === 0 && module === "run_pip" && said.join() === "pip";
    const unsaid = having.filter((kind) => !said.some((process) => isOf(kind, process)));
    const wrong = said.filter((process) => !having.some((kind) => isOf(kind, process)));
    expect({ unsaid, wrong }).toEqual({ unsaid: [], wrong: isPip ? ["pip"] : [] });
  },
);
