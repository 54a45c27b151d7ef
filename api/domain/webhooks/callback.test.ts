import { expect, test } from "vitest";
import { isAllowedCallback } from "./callback.ts";

test.each([
  ["https://hooks.example/a?b=c", "hooks.example", true],
  ["https://HOOKS.example:443/", "hooks.example", true],
  ["https://hooks.example:8443/", "hooks.example", false],
  ["https://hooks.example:8443/", "hooks.example:8443", true],
  ["https://hooks.example/", "hooks.example:8443", false],
  ["http://hooks.example/", "hooks.example", false],
  ["http://hooks.example/", "http://hooks.example", true],
  ["https://hooks.example/", "http://hooks.example", false],
  ["http://127.0.0.1:9000/", "http://127.0.0.1:9000", true],
  ["http://2130706433:9000/", "http://127.0.0.1:9000", true],
  ["https://[::1]:9000/", "[::1]:9000", true],
  ["https://a.b.example/", "*.example", true],
  ["https://example/", "*.example", false],
  ["https://evilexample/", "*.example", false],
  ["https://hooks.example.evil.test/", "hooks.example", false],
  ["https://hooks.example@evil.test/", "hooks.example", false],
  ["https://hooks.example./", "hooks.example", false],
])("%s with the host %s: %s", (url, host, isAllowed) => {
  expect(isAllowedCallback(url, ["other.example", host])).toBe(isAllowed);
});
