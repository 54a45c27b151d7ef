import { expect, test } from "vitest";
import { isLocal } from "./post.worker.ts";

const hostOf = (url: string) => new URL(url).hostname.replace(/^\[|\]$/g, "");

test.each([
  "http://127.0.0.1",
  "http://2130706433",
  "http://0x7f.1",
  "http://1.1.1.1",
  "http://[::1]",
  "http://localhost",
  "http://LOCALHOST.",
  "http://a.localhost",
  "http://db.internal",
  "http://printer.local",
  "http://intranet",
  "http://1.0.0.127.in-addr.arpa",
])("a worker does not call %s", (url) => {
  expect(isLocal(hostOf(url))).toBe(true);
});

test.each(["https://hooks.example", "https://local.example", "https://xn--bcher-kva.example"])(
  "a worker calls %s",
  (url) => {
    expect(isLocal(hostOf(url))).toBe(false);
  },
);
