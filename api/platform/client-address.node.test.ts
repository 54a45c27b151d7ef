import { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { clientAddress } from "./client-address.node.ts";

/** The address that a request is held to come from. */
async function addressOf(trusted: string[], socket: string | undefined, forwarded?: string) {
  const app = new Hono();
  const read = clientAddress(trusted);
  app.get("/", (c) => c.text(read(c)));
  const headers = forwarded === undefined ? {} : { "X-Forwarded-For": forwarded };
  const env = { incoming: { socket: { remoteAddress: socket } } };
  const response = await app.request("/", { headers }, env);
  return response.status === 200 ? response.text() : response.status;
}

const proxies = ["10.0.0.0/8", "fd00::1"];

test.each([
  ["the socket's, without a proxy", [], "192.0.2.1", undefined, "192.0.2.1"],
  ["the socket's, whatever it forges", [], "192.0.2.1", "198.51.100.1", "192.0.2.1"],
  [
    "the socket's, where that is no trusted proxy",
    proxies,
    "192.0.2.1",
    "198.51.100.1",
    "192.0.2.1",
  ],
  ["what a trusted proxy tells", proxies, "10.1.2.3", "198.51.100.1", "198.51.100.1"],
  ["what a trusted IPv6 proxy tells", proxies, "fd00::1", "2001:db8::7", "2001:db8::7"],
  [
    "the last that no trusted proxy added",
    proxies,
    "10.0.0.1",
    "6.6.6.6, 198.51.100.1, 10.9.9.9",
    "198.51.100.1",
  ],
  [
    "IPv4 without its IPv6 prefix",
    proxies,
    "::ffff:10.0.0.1",
    "::ffff:198.51.100.1",
    "198.51.100.1",
  ],
  ["the proxy's, where it tells nothing", proxies, "10.0.0.1", undefined, "10.0.0.1"],
  ["unknown, where the socket is gone", proxies, undefined, "198.51.100.1", "unknown"],
])("a client's address is %s", async (_title, trusted, socket, forwarded, address) => {
  expect(await addressOf(trusted, socket, forwarded)).toBe(address);
});

describe("an entry that is not an address ends the search at the proxy that wrote it", () => {
  test.each([
    "",
    "unknown",
    "999.1.1.1",
    "1.2.3",
    "[::1",
    "198.51.100.1:http",
    "a, b",
    "::g",
    "_id",
  ])("%j", async (forwarded) => {
    expect(await addressOf(proxies, "10.0.0.1", forwarded)).toBe("10.0.0.1");
    const forged = `198.51.100.1, ${forwarded}, 10.9.9.9`;
    expect(await addressOf(proxies, "10.0.0.1", forged)).toBe("10.9.9.9");
  });
});

test.each([
  ["198.51.100.1:4711", "198.51.100.1"],
  ["[2001:db8::7]", "2001:db8::7"],
  ["[2001:db8::7]:4711", "2001:db8::7"],
  ["[::ffff:198.51.100.1]:4711", "198.51.100.1"],
  ["6.6.6.6, 198.51.100.1:4711, 10.9.9.9:80", "198.51.100.1"],
])("of %j the client is %s", async (forwarded, address) => {
  expect(await addressOf(proxies, "10.0.0.1", forwarded)).toBe(address);
});
