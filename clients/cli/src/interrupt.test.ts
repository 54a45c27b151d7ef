import { expect, test } from "vitest";
import { ExitError, exitCode } from "./exit.ts";
import { interruptible } from "./interrupt.ts";

test.each(["SIGINT", "SIGHUP"] as const)(
  "a %s that arrives twice at the same time, as Ctrl-C does under npm, is one interrupt",
  async (name) => {
    const work = async (signal: AbortSignal) => {
      process.emit(name);
      process.emit(name);
      return signal.reason as unknown;
    };
    const reason = await interruptible(work);
    expect(reason).toBeInstanceOf(ExitError);
    expect(reason).toMatchObject({ code: exitCode.interrupted, message: "interrupted" });
    expect(process.listenerCount(name)).toBe(0);
  },
);
