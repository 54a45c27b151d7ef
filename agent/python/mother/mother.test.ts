import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, sources } from "../program.ts";

/** The mother's loop alone: of two pipes that can be read, the first to be handled closes the other. */
const probe = `
import os, groups, mother
groups.open_groups = lambda: None
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
  const modules = ["common/files", "common/link", "common/kernel", "common/ids"];
  const own = ["groups", "switch", "birth", "zygotes", "jobs", "mother"];
  const program = loadModules({
    ...sources([...modules, "common/fork_request", ...own.map((name) => `mother/${name}`)]),
    probe,
  });
  const said = execFileSync("python3", ["-I", "-c", program], {
    encoding: "utf8",
    timeout: 20_000,
  });
  expect(said).toBe("the same number: True\n");
});
