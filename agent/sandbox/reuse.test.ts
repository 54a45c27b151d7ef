import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, source } from "./supervisor.ts";

test("a process that reuses the pid of an ended interpreter counts as the job's", () => {
  const probe = `
import os, subprocess
from reuse import Reuser

process = subprocess.Popen(["sleep", "60"])
reuser = Reuser.__new__(Reuser)
reuser.zygote_died = False
reuser.interpreter = type("Zygote", (), {"pid": process.pid})
print(process.pid in reuser.others())
reuser.reaped(process.pid, 9, None)
print(process.pid in reuser.others())
process.kill()
process.wait()`;
  const names = ["files", "privileges", "link", "relay", "job", "supervisor", "wipe", "reuse"];
  const modules = Object.fromEntries(names.map((name) => [name, source(name)]));
  const program = loadModules({ ...modules, probe });
  const output = execFileSync("python3", ["-I", "-S", "-c", program], { encoding: "utf8" });
  expect(output).toBe("False\nTrue\n");
});
