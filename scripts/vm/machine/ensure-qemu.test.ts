import { expect, test } from "vitest";
import { isNewEnough } from "./ensure-qemu.ts";

test.each([
  ["QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", false],
  ["QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", true],
  ["", false],
])("%s: %s", (version, yes) => {
  expect(isNewEnough(version)).toBe(yes);
});
