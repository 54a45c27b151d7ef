import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { testEngine } from "../testing/engine.ts";
import { answers, around, direct } from "../testing/filters.ts";
import { controlGroupsOf } from "../testing/hostile.ts";
import { rawEngine } from "../testing/raw-engine.ts";
import {
  compileFilter,
  motherProfile,
  type SeccompProfile,
  seccompProfile,
  zygoteProfile,
} from "./filter.ts";
import { type Architecture, syscallNumbers } from "./syscall-numbers.ts";

describe("seccomp filter", () => {
  const probe = readFileSync(
    new URL("../testing/programs/filter-answers.py", import.meta.url),
    "utf8",
  );

  let image: string;
  let architecture: Architecture;
  beforeAll(async () => {
    ({ image } = await testEngine());
    architecture = (await rawEngine.version()).Arch === "arm64" ? "aarch64" : "x86_64";
  });

  interface Call {
    readonly number: number;
    readonly args: readonly bigint[];
  }

  /** A filter's answers to calls. The engine installs a profile; a compiled program is installed in a container without one. */
  async function ask(filter: SeccompProfile | Buffer, calls: readonly Call[]): Promise<string[]> {
    const isProgram = Buffer.isBuffer(filter);
    const words = calls.map(({ number, args }) =>
      [number, ...args].map((word) => word.toString(16)).join(":"),
    );
    const container = await rawEngine.createContainer({
      Image: image,
      Entrypoint: ["python3", "-c", probe],
      Cmd: [isProgram ? filter.toString("base64") : "", ...words],
      Tty: true,
      HostConfig: {
        SecurityOpt: [`seccomp=${isProgram ? "unconfined" : JSON.stringify(filter)}`],
        NetworkMode: "none",
      },
    });
    try {
      const printed = text(await container.attach({ stream: true, stdout: true, stderr: true }));
      await container.start();
      const { StatusCode } = (await container.wait()) as { StatusCode: number };
      if (StatusCode !== 0) throw new Error(`exit code ${StatusCode}: ${await printed}`);
      return JSON.parse(await printed) as string[];
    } finally {
      await container.remove({ force: true, v: true });
    }
  }

  const noCall = 0xffff_ffff;
  const x32Bit = 0x4000_0000;
  const x32 = [x32Bit, x32Bit + 39, 0x8000_0000, 0xc000_0000, noCall];

  /** Every call, those of another width, and arguments around those that the profile names. */
  function callsOf(profile: SeccompProfile): Call[] {
    const numbers = [...Array(601).keys(), ...(architecture === "x86_64" ? x32 : [])];
    const guarded = profile.syscalls.filter(({ args }) => args);
    return [
      ...numbers.map((number) => ({ number, args: [] })),
      ...[...new Set(guarded.flatMap(({ names }) => names))].flatMap((name) => {
        const rules = guarded.filter(({ names }) => names.includes(name));
        const number = syscallNumbers[architecture].get(name)!;
        return [...around(rules, [0, 8, 31, 32, 63])].map((args) => ({
          number,
          args: args.slice(0, 3),
        }));
      }),
    ];
  }

  /** The probe installs a filter of its own after this one. */
  function probed(profile: SeccompProfile): SeccompProfile {
    const rule = { names: ["seccomp"], action: "SCMP_ACT_ALLOW" } as const;
    return { ...profile, syscalls: [...profile.syscalls, rule] };
  }

  test.each([
    ["code without sockets of the internet", probed(seccompProfile("none"))],
    ["code", probed(seccompProfile("tcp"))],
    ["code with all sockets", probed(seccompProfile("full"))],
    ["a zygote", zygoteProfile()],
    ["a mother", motherProfile()],
  ])("the compiled filter of %s answers as the engine's own", async (_, profile) => {
    const calls = callsOf(profile);
    const compiled = await ask(compileFilter(profile, architecture), calls);
    const engines = await ask(profile, calls);
    // An engine leaves out the calls that are newer than its libseccomp.
    const known = Math.max(...calls.map(({ number }, i) => (engines[i] === "allow" ? number : 0)));
    const isNewer = ({ number }: Call): boolean => number > known && (number & x32Bit) === 0;
    const expected = calls.map((call, i) =>
      isNewer(call) ? answerOf(profile, call) : (engines[i] ?? "none"),
    );
    const lines = (told: readonly string[]): string[] =>
      calls.map(({ number, args }, i) => `${number}(${args.join()}): ${told[i]}`);
    expect(known).toBeGreaterThan(400);
    expect(lines(compiled)).toEqual(lines(expected));
  });

  /** The profile's answer to a call, read without the engine. */
  function answerOf(profile: SeccompProfile, { number }: Call): string {
    const name = Object.entries(answers).find(
      ([, value]) => value === direct(profile, architecture)(number),
    )![0];
    return name === "allow" ? name : name.toUpperCase();
  }
});

test("a container's control group is found while it runs and gone after it, on cgroup v1 and v2", async () => {
  const { image } = await testEngine();
  const container = await rawEngine.createContainer({
    Image: image,
    Entrypoint: ["sleep"],
    Cmd: ["600"],
  });
  const marks = new Set([container.id]);
  try {
    await container.start();
    expect(controlGroupsOf(marks)).not.toEqual([]);
  } finally {
    await container.remove({ force: true, v: true });
  }
  await vi.waitFor(() => expect(controlGroupsOf(marks)).toEqual([]), { timeout: 60_000 });
});
