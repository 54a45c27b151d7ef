import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, sources } from "../program.ts";

/** What takes the place of birth.py: a start that takes as long as the test wants, and its last step. */
const birth = (lastStep: string): string => `
import os
ROOTFS, BUNDLES, READY_FOR_IDS, PID_BYTES = "/", "/", b"x", 4
waits, go_on = os.pipe()
until_the_end, end = os.pipe()
def become_zygote(settings, order, control, output, tell, hold):
    os.read(waits, 1)
    os.close(end)
    ${lastStep}
    os._exit(3)
`;

/** A mother that only remembers what was asked of it. */
const probe = `
import os, select, types, birth, zygotes
handlers, said = {}, []
mother = types.SimpleNamespace(
    settings={"ids": (0, 1)}, zygotes={}, drop_groups=lambda groups: None,
    handle=lambda fd, handler: handlers.update({fd: handler}), forget=lambda fd: handlers.pop(fd, None),
    groups=types.SimpleNamespace(make=lambda name, limits: [], place=lambda groups, pid: None),
    switch=types.SimpleNamespace(put=lambda number, kind, payload: said.append(kind)))
order = {"root": "tmp", "memory": 1, "pids": 1, "cpus": 1}
mother.zygotes[1] = zygotes.Zygote(mother, 1, order)
print("other jobs go on while it starts:", len(handlers), said)
os.write(birth.go_on, b"x")
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
  const modules = sources(["common/files", "common/link", "common/kernel", "mother/groups"]);
  const own = { birth: birth(lastStep), ...sources(["mother/zygotes"]), probe };
  const program = loadModules({ ...modules, ...own });
  const said = execFileSync("python3", ["-I", "-c", program], {
    encoding: "utf8",
    timeout: 20_000,
  });
  expect(said).toBe("other jobs go on while it starts: 3 []\nits end is told: [b'N'] {}\n");
});
