import type { Random } from "./random.ts";

/** A job of a soak: what is submitted, and how it may end. */
export type SoakJob = {
  readonly kind: string;
  readonly code: string;
  readonly input: Readonly<Record<string, unknown>>;
  readonly timeout: number;
  readonly ends: readonly string[];
  readonly stdout?: string;
};

const print = `
import json
print(json.load(open("/input/data.json"))["mark"])
`;

/** Its artifact, its output and its stream all name one run of the code. */
const writesFiles = `
import json, uuid
mark = json.load(open("/input/data.json"))["mark"]
run = str(uuid.uuid4())
open("run.txt", "w").write(run)
open("big.bin", "wb").write(run.encode() * 3000)
json.dump({"run": run, "mark": mark}, open("/output/result.json", "w"))
print(mark)
`;

const sleeps = `${print}
import sys, time
sys.stdout.flush()
time.sleep(json.load(open("/input/data.json"))["seconds"])
`;

const takesMemory = `
held = []
while True:
    held.append(b"x" * 10_000_000)
`;

const kinds = [
  { kind: "prints", weight: 6, code: print, ends: ["succeeded"] },
  { kind: "writes files", weight: 5, code: writesFiles, ends: ["succeeded"] },
  { kind: "takes seconds", weight: 4, code: sleeps, ends: ["succeeded"], seconds: [1, 9] },
  { kind: "raises", weight: 2, code: `raise ValueError("no")`, ends: ["failed/value_error"] },
  { kind: "exits with 3", weight: 1, code: "raise SystemExit(3)", ends: ["failed/runtime_error"] },
  {
    kind: "runs too long",
    weight: 1,
    code: sleeps,
    ends: ["timeout/execution_timeout"],
    seconds: [60, 61],
    timeout: 1,
  },
  { kind: "takes all memory", weight: 1, code: takesMemory, ends: ["oom/oom"] },
] as const;
type Kind = {
  kind: string;
  weight: number;
  code: string;
  ends: readonly string[];
  seconds?: readonly [number, number];
  timeout?: number;
};

export function makeJob(random: Random, mark: string): SoakJob {
  const { kind, code, ends, seconds, timeout } = random.weighted<Kind>(kinds);
  return {
    kind,
    code,
    ends,
    timeout: timeout ?? 30,
    input: { mark, ...(seconds && { seconds: Number(random.between(...seconds).toFixed(1)) }) },
    ...(ends.includes("succeeded") && { stdout: `${mark}\n` }),
  };
}

/** A job for a client that changes its mind: it would run for a minute. */
export function longJob(mark: string): SoakJob {
  return {
    kind: "is cancelled",
    code: sleeps,
    input: { mark, seconds: 60 },
    timeout: 90,
    ends: ["succeeded", "cancelled/cancelled"],
  };
}
