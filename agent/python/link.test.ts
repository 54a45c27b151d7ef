import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { loadModules, sources } from "./program.ts";

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
