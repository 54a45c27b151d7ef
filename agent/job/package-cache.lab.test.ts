import { expect, test, vi } from "vitest";
import { bundlesInVolume } from "../testing/bundles-in-volume.ts";
import {
  api,
  cached,
  indexOf,
  MiB,
  name,
  nextResult,
  offer,
  probe,
  run,
  start,
  told,
  untilRunning,
  useWorld,
  wheel,
} from "../testing/package-world.ts";

useWorld();
test("the least recently used bundles go first; one in use stays and can still be imported from", async () => {
  const index = await indexOf({ wheels: ["a", "b", "c", "d"].map((letter) => wheel(letter, 4)) });
  await start(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(13 * MiB) });
  const lazy = `
import signal, sys
def end(*_):
    import airlock_a
    print(airlock_a.n, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.pause()`;
  const user = offer({ code: lazy, requirements: ["airlock-a"] });
  await api.request("/started", 1);
  const printing = (letter: string) =>
    run({ code: "print(1)", requirements: [`airlock-${letter}`] });
  for (const letter of "bcd") expect(told(await printing(letter))).toEqual(["succeeded", "1\n"]);
  await vi.waitFor(async () => expect(await bundlesInVolume(name)).toHaveLength(3), 240_000);
  expect((await printing("d")).timing.dep_install_ms).toBe(0);
  expect((await printing("b")).timing.dep_install_ms).toBeGreaterThan(0);
  api.cancel.push(user.lease_id);
  api.wake();
  expect(told(await nextResult())).toEqual(["cancelled", "42\n"]);
});

test("a bundle over the bound is refused with the key to raise, and leaves nothing", async () => {
  const index = await indexOf({ wheels: [probe, wheel("a", 12)] });
  await start(index, { ...cached, AIRLOCK_DEPENDENCY_CACHE_BYTES: String(10 * MiB) });
  const report = await run({ requirements: ["airlock-a"] });
  expect(report).toMatchObject({ status: "failed", error: { type: "dependency_error" } });
  expect(report.error?.message).toContain("10 MiB");
  expect(report.error?.message).toContain("raise its dependency_cache_bytes");
  expect(report.timing.dep_install_ms).toBeGreaterThan(0);
  expect(told(await run())).toEqual(["succeeded", "42\n"]);
  expect(await bundlesInVolume(name)).toHaveLength(1);
});

// Unpacking takes long enough for the kill.
test.each([
  ["install-", 1],
  ["unpack-", 64],
])(
  "an agent that is killed while its container %s… runs leaves nothing of the bundle",
  async (kind, mebibytes) => {
    const opens = Promise.withResolvers<void>();
    const index = await indexOf({ wheels: [wheel("a", mebibytes)], opens: opens.promise });
    const first = await start(index, cached);
    // The files of the image have to be there: these are unpacked, too.
    expect(told(await run({ code: "print(1)", requirements: [] }))).toEqual(["succeeded", "1\n"]);
    offer({ code: "import airlock_a; print(airlock_a.n)", requirements: ["airlock-a"] });
    await vi.waitFor(() => expect(index.requests.length).toBeGreaterThan(0), 240_000);
    if (kind === "unpack-") opens.resolve();
    await untilRunning(kind);
    first.process.kill("SIGKILL");
    await first.exit;
    opens.resolve();
    await start(index, cached);
    const report = await run({
      code: "import airlock_a; print(airlock_a.n)",
      requirements: ["airlock-a"],
    });
    expect(told(report)).toEqual(["succeeded", "42\n"]);
    expect(await bundlesInVolume(name)).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
  },
);
