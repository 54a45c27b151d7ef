import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { expect, test } from "vitest";
import { startTestService } from "../testing/test-service.ts";

const key = "lab-key-0123456789abcdef";
const [workers, samples, limitS] = [128, 512, 10];

/** Every 64th never ends, and every 8th of the others fails. */
function sample(n: number): { code: string; verdict: unknown[] } {
  if (n % 64 === 1) {
    return { code: "while True: pass", verdict: ["Failed", "TimeLimitExceeded", null, ""] };
  }
  if (n % 8 === 0) return { code: "raise SystemExit(3)", verdict: ["Failed", "Finished", 3, ""] };
  return { code: "print(int(input()) * 2)", verdict: ["Success", "Finished", 0, `${n * 2}\n`] };
}

interface Graded {
  status: string;
  run_result: { status: string; return_code: number | null; stdout: string } | null;
}

/**
 * Asks as verl's reward function does: it waits as long as compiler and code may take and 10 s for each part of an answer
 * (`timeout` of requests), and asks again after 504 alone, three times in all. Any other answer is a verdict. Source:
 * volcengine/verl, verl/utils/reward_score/sandbox_fusion.
 */
async function grade(url: string, n: number): Promise<unknown[]> {
  const limits = { compile_timeout: limitS, run_timeout: limitS, memory_limit_MB: 512 };
  const body = JSON.stringify({
    ...limits,
    code: sample(n).code,
    stdin: `${n}`,
    language: "python",
  });
  for (let tries = 1; ; tries++) {
    const silenceMs = (2 * limitS + 10) * 1000;
    const silence = { headersTimeout: silenceMs, bodyTimeout: silenceMs };
    const answer = await request(`${url}/run_code`, { method: "POST", body, ...silence });
    const text = await answer.body.text();
    if (answer.statusCode === 504 && tries < 3) {
      await sleep(tries * 1000);
      continue;
    }
    if (answer.statusCode !== 200) return [answer.statusCode, text];
    const { status, run_result: ran } = JSON.parse(text) as Graded;
    return [status, ran?.status, ran?.return_code, ran?.stdout];
  }
}

test("verl's 128 workers get every verdict, with the default queue of 100", async () => {
  const api = { AIRLOCK_COMPAT: "sandbox-fusion", AIRLOCK_COMPAT_KEY: key };
  await using service = await startTestService({ key, api });
  await service.startAgent("agent", { AIRLOCK_CONTAINER_BACKEND: "zygote" });
  const url = `${service.url}/compat/sandbox-fusion`;
  const all = Array.from({ length: samples }, (_, n) => n);
  const verdicts: unknown[] = [];
  const left = all.values();
  const work = async () => {
    for (const n of left) verdicts[n] = await grade(url, n);
  };
  await Promise.all(Array.from({ length: workers }, work));
  expect(verdicts).toEqual(all.map((n) => sample(n).verdict));
});
