import { beforeAll, expect, test } from "vitest";
import { ends } from "../sandbox/testing/programs/ends.ts";
import { lastActs } from "../sandbox/testing/programs/last-acts.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { runCode } from "../sandbox/testing/run-code.ts";
import { comparable, type Outcome, outcomeOf } from "../sandbox/testing/semantics-rows.ts";

const programs: Readonly<Record<string, string>> = { ...ends, ...lastActs };

/** Runs each program in an interpreter of its own, which no gate has prepared. */
const runAll = `import base64, json, os, shutil, subprocess
os.mkdir("/dev/shm/code")
outcomes = {}
for name, code in json.load(open("/input/data.json")).items():
    for entry in os.scandir("/tmp"):
        shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
    with open("/dev/shm/code/main.py", "w") as file: file.write(code)
    run = subprocess.run(["python3", "/dev/shm/code/main.py"], stdin=-3, stdout=-1, stderr=-1, start_new_session=True)
    texts = [text.decode("latin-1").replace("/dev/shm/code/", "/code/") for text in (run.stdout, run.stderr)]
    outcomes[name] = dict(zip(("exit", "stdout", "stderr"), (run.returncode, *texts)))
print(json.dumps(outcomes))`;

let place: Awaited<ReturnType<typeof testEngine>>;
let plain: Record<string, Outcome>;
beforeAll(async () => {
  place = await testEngine();
  const job = { inputJson: JSON.stringify(programs) };
  const { out, err } = await runCode(place, runAll, { backend: "zygote", job });
  if (err !== "") throw new Error(err);
  plain = JSON.parse(out) as Record<string, Outcome>;
});

test.each(Object.entries(programs))("%s, in a fork as under python3", async (name, code) => {
  const { report } = await runCode(place, code, { backend: "zygote" });
  expect(comparable(outcomeOf(report))).toEqual(comparable(plain[name]));
});
