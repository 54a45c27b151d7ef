import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { testEngine } from "../sandbox/testing/engine.ts";
import { runCode } from "../sandbox/testing/run-code.ts";

/** What may look different in a fork than in a container, and why. */
const reasons: readonly (readonly [RegExp, string])[] = [
  [/^classes$/, "those of PID 1's modules live on; localhost's name takes unicodedata"],
  [/^control groups|^mounts \/sys\/fs\/cgroup/, "only the groups of memory, processes and CPU"],
  [/^filters$/, "the filters of mother and zygote lie under the job's"],
  [/^limits RLIMIT_SIGPENDING$/, "each fork has its part of what the host allows its creator"],
  [/^localhost$|^names$|^mounts \/etc\//, "its /etc is a copy: localhost has a name there"],
  [/^mounts \/dev(\/(full|null|random|tty|urandom|zero))?$/, "device files are the mother's"],
  [/^mounts (\/proc\/|\/sys\/firmware)/, "what is masked shows an empty folder of the zygote's"],
  [/^mounts \/$/, "its files are on a volume, without devices and set-uid programs"],
  [/^processes$/, "PID 1 starts no other process before the code"],
  [/^root$/, "/proc and /sys belong to nobody; /packages is always there"],
  [/^user namespace$/, "it has one"],
];

test("a fork sees what code in a container of its own sees, but for a list", async () => {
  const place = await testEngine();
  const code = readFileSync(
    new URL("../sandbox/testing/programs/view.py", import.meta.url),
    "utf8",
  );
  const spec = { env: { A: "b" }, preload: ["json"] };
  const [engine, zygote] = await Promise.all(
    ["engine", "zygote"].map(async (backend) => {
      const { out, err, end } = await runCode(place, code, { spec, backend });
      expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
      return flat(JSON.parse(out) as Record<string, unknown>);
    }),
  );
  const names = [...new Set([...Object.keys(engine!), ...Object.keys(zygote!)])];
  const differing = names.filter((name) => engine![name] !== zygote![name]);
  const explained = (name: string): boolean => reasons.some(([which]) => which.test(name));
  const unexplained = differing.filter((name) => !explained(name));
  expect(unexplained.map((name) => [name, engine![name], zygote![name]])).toEqual([]);
  // They would come from `compile`, and each job would end with them: 0.4 ms.
  expect(zygote!["classes"]).not.toContain('"ast"');
  expect(names).toEqual(
    expect.arrayContaining(["identity", "limits RLIMIT_NOFILE", "environment", "mounts /tmp"]),
  );
});

/** JSON by name; each mount and each limit by itself. */
function flat({ mounts, limits, ...rest }: Record<string, unknown>): Record<string, string> {
  const each = Object.entries({ mounts, limits }).flatMap(([kind, values]) =>
    Object.entries(values as object).map(([name, value]) => [`${kind} ${name}`, value] as const),
  );
  const all = [...Object.entries(rest), ...each];
  return Object.fromEntries(all.map(([name, value]) => [name, JSON.stringify(value)]));
}
