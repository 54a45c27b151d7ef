import { createServer, type Server } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openSandbox } from "../../container/open-sandbox.ts";
import { testEngine } from "../testing/engine.ts";
import { hostileCases } from "../testing/hostile.ts";
import { bridgeAddress, rawEngine, shell } from "../testing/raw-engine.ts";
import { specWith } from "../testing/report.ts";

/** Stands for the API: on every address of the host. */
let server: Server;
let requests = 0;
beforeAll(async () => {
  server = createServer((_, response) => {
    requests += 1;
    response.end("reached");
  }).listen(0, "0.0.0.0");
  await once(server, "listening");
});
afterAll(() => server.close());

const port = (): number => (server.address() as AddressInfo).port;

async function hostAddresses(): Promise<string[]> {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return [await bridgeAddress(), ...own.map(({ address }) => address)];
}

hostileCases(({ run, place, runtime }) => {
  test("hostile 26: metadata address, gateway, host, DNS, the API's port", async () => {
    const addresses = await hostAddresses();
    const { out, err } = await run(
      `
import os, socket, struct
targets = [(a, ${port()}) for a in ${JSON.stringify(addresses)}]
targets += [("169.254.169.254", 80), ("fd00:ec2::254", 80), ("100.100.100.200", 80), ("10.0.0.1", 80), ("192.168.0.1", 80), ("1.1.1.1", 443), ("8.8.8.8", 53), ("127.0.0.1", ${port()}), ("::1", ${port()}), ("0.0.0.0", ${port()})]
reached = []
for address, port in targets:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as tcp:
        tcp.settimeout(2)
        try: tcp.connect((address, port)); reached.append(address)
        except OSError: pass
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        try:
            udp.sendto(b"x", (address, 53)); udp.settimeout(0.05); reached.append(("udp", address, udp.recv(10)))
        except OSError: pass
for name in ("example.com", "metadata.google.internal", "host.docker.internal", "gateway.docker.internal", "api"):
    try: reached.append(socket.getaddrinfo(name, 80))
    except OSError: pass
print(reached, [i[1] for i in socket.if_nameindex()])`,
      { spec: { loopback: "full" } },
    );
    expect(err).toBe("");
    expect(out).toBe("[] ['lo']\n");
    expect(requests).toBe(0);
  });

  test("hostile 26: the host's sockets that have no address", async () => {
    const { out } = await run(`
import socket
reached = []
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private", "\\0airlock", "\\0/containerd-shim"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try: socket.socket(socket.AF_UNIX, kind).connect(path); reached.append(path)
        except OSError: pass
names = [line.split()[-1] for line in open("/proc/net/unix") if "/" in line or "@" in line]
print(reached, names)`);
    expect(out).toBe("[] []\n");
  });

  test("hostile 26: another job's container", async () => {
    const { engine, image } = place();
    const labels = { agentId: "hostile-neighbour", agentName: "hostile-neighbour", leaseId: null };
    const spec = specWith({ image, labels, runtime, network: "bridge" });
    const neighbour = await openSandbox(engine, spec, AbortSignal.timeout(30_000));
    try {
      const { NetworkSettings } = await rawEngine.getContainer(neighbour.containerId).inspect();
      const address = NetworkSettings.Networks["bridge"]?.IPAddress ?? "";
      expect(address).not.toBe("");
      const { out } = await run(`
import socket
for port in (22, 80, 8080):
    try: socket.create_connection(("${address}", port), 1)
    except OSError as e: print(e.strerror)`);
      // Refused would mean that something answered.
      expect(out).toMatch(/^(Network is unreachable\n|No route to host\n){3}$/);
    } finally {
      await neighbour.close();
    }
  });
});

test("hostile 26: a container with a network reaches what these tests try to reach", async () => {
  const { image } = await testEngine();
  const ask = `python3 -c 'import urllib.request as r; print(r.urlopen("http://${await bridgeAddress()}:${port()}").read())'`;
  expect(await shell(image, ask)).toContain("reached");
  requests = 0;
});
