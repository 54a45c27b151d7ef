import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "vitest";
import { checkAddress, localUrl } from "./address.ts";

test("a free port passes, a taken one is named", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await expect(checkAddress("127.0.0.1", port)).rejects.toThrow(
    `port ${port} on 127.0.0.1 is taken`,
  );
  server.close();
  await once(server, "close");
  await expect(checkAddress("127.0.0.1", port)).resolves.toBeUndefined();
});

test("an address of another machine is refused", async () => {
  await expect(checkAddress("192.0.2.1", 0)).rejects.toThrow("is not an address of this machine");
});

test.each([
  ["http://0.0.0.0:8080", "http://127.0.0.1:8080"],
  ["http://[::]:8080", "http://[::1]:8080"],
  ["http://192.0.2.1:8080", "http://192.0.2.1:8080"],
])("an API that listens at %s is reached at %s", (listening, local) => {
  expect(localUrl(listening)).toBe(local);
});
