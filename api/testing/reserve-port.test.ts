import { readFileSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { reservePort } from "./reserve-port.ts";

test("a reserved port is free, and not one that the kernel gives to others", async () => {
  const range = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const [first, last] = range.split("\t").map(Number) as [number, number];
  const port = await reservePort();
  expect(port < first || port > last).toBe(true);
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  server.close();
});

test("no port is reserved twice, even if nobody listens on it", async () => {
  const ports = await Promise.all(Array.from({ length: 500 }, () => reservePort()));
  expect(new Set(ports).size).toBe(500);
});
