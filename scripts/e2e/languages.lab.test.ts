import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { rawEngine } from "../../agent/sandbox/testing/raw-engine.ts";
import { languages } from "../../shared/languages.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import { ensureLanguagesImage, imageMs } from "../setup/images/lab-images.ts";
import { programs } from "../testing/language-programs.ts";
import { type Place, places } from "../testing/places.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

/** Seconds: emulated machines compile slowly. */
const patience = { compile_timeout: 300, startup_timeout: 600 };

/** C++ that is hostile to its compiler. */
const hostile: Record<string, string> = {
  "takes all memory": `#include "/dev/zero"`,
  "fills the disk": `int numbers[1 << 29] = {1};\nint main() {}`,
  "grows without end": `#define A0 "${"x".repeat(4096)}"
${Array.from({ length: 24 }, (_, n) => `#define A${n + 1} A${n} A${n}`).join("\n")}
const char *text = A24;
int main() {}`,
  "includes itself": `#include __FILE__`,
  "reads what is root's": `#include "/etc/shadow"`,
};

/** Each language of the table, from a client's request to the record, in an image of Debian's packages. */
describe.each(Object.keys(places) as Place[])("in %s", (place) => {
  let service: TestService;

  beforeAll(async () => {
    const base_image = await ensureLanguagesImage(rawEngine);
    service = await startTestService({
      api: { AIRLOCK_JOB_TYPES: JSON.stringify({ default: { base_image } }) },
    });
    await service.startAgent("agent", { ...places[place], AIRLOCK_MAX_WORKERS: "2" });
  }, imageMs);
  afterAll(() => service?.[Symbol.asyncDispose]());

  async function run(code: string, more: Record<string, unknown>): Promise<ExecutionRecord> {
    const id = await service.submit(code, {}, { timeout: 60, ...patience, ...more });
    await service.send("GET", `/jobs/${id}/result?wait=true&timeout=300`);
    return service.record(id);
  }

  describe.each(Object.keys(languages))("%s", (language) => {
    const { code, assertion, memory } = programs[language]!;
    const { compile } = languages[language]!;
    const ways = (mode: string, timeout = 60) =>
      run(code, { language, stdin: `${mode}\n20\n22\n`, timeout });

    test("reads its input", async () => {
      const { status, stdout, stderr, compile: compiled } = await ways("add");
      expect({ status, stdout, stderr }).toEqual({
        status: "succeeded",
        stdout: "42\n",
        stderr: "",
      });
      expect(compiled?.exit_code).toBe(compile && 0);
    });

    test("fails an assertion", async () => {
      const { error, exit_code, stdout, stderr } = await ways("assert");
      expect([error?.type, exit_code]).toEqual(assertion);
      expect(stdout + stderr).toMatch(/assert|1 \+ 1/i);
    });

    test("is no program", async () => {
      const head = language === "php" ? "<?php " : "";
      const { status, error, stdout } = await run(`${head}this is no program (`, { language });
      const type = compile ? "compile_error" : "runtime_error";
      expect({ status, type: error?.type }).toEqual({ status: "failed", type });
      expect(stdout).not.toContain("42");
    });

    test("never ends", async () => {
      expect((await ways("loop", 2)).status).toBe("timeout");
    });

    test("takes all memory", async () => {
      const { status, error, stderr } = await ways("memory");
      expect(`${status} ${error?.type}`).toBe(memory === undefined ? "oom oom" : memory.end);
      expect(stderr).toContain(memory?.words ?? "");
    });

    test("forks without end, and the next job runs well", async () => {
      const { status, error } = await ways("forks", 3);
      const ended = `${status} ${error?.type}`;
      expect(["timeout execution_timeout", "failed runtime_error", "oom oom"]).toContain(ended);
      expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
    });
  });

  test.each(Object.entries(hostile))("a source that %s", async (_what, code) => {
    const { status, error, compile } = await run(code, { language: "cpp", compile_timeout: 30 });
    expect(["failed compile_error", "oom oom"]).toContain(`${status} ${error?.type}`);
    expect(compile?.stderr ?? "").not.toContain("root:");
    expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
  });
});
