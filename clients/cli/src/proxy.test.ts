import { expect, test } from "vitest";
import { proxyOf, useProxies } from "./proxy.ts";

const proxies = { http_proxy: "proxy:3128", HTTPS_PROXY: "http://user:secret@secure:8080" };

test.each([
  ["http://airlock.example:8080", "", "proxy:3128"],
  ["https://airlock.example", "other.example", "secure:8080"],
  ["https://airlock.example", "other.example, .example", undefined],
  ["https://airlock.example", "*", undefined],
  ["http://localhost:8080", "", undefined],
  ["http://127.0.0.1:8080", "", undefined],
  ["http://[::1]:8080", "", undefined],
])("the way to %s, with NO_PROXY=%s, leads through %s", (url, NO_PROXY, proxy) => {
  expect(proxyOf(url, { ...proxies, NO_PROXY })).toBe(proxy);
});

test("a proxy of another kind is refused, without its password", () => {
  expect(() => useProxies({ https_proxy: "socks5://user:secret@host" })).toThrow(
    /^https_proxy must be an address such as http:..proxy.example:3128$/,
  );
});
