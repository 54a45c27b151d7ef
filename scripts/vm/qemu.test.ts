import { expect, test } from "vitest";
import { emulated } from "./qemu.ts";

test.each([
  ["QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", "tcg,thread=single"],
  ["QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", "tcg,thread=multi"],
  ["something else", "tcg,thread=single"],
])("%s: %s", (version, accel) => {
  expect(emulated(version)).toMatchObject({ accel });
});
