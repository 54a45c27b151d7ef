import { expect, test } from "vitest";
import { clientNetwork } from "./client-network.ts";

test.each([
  ["192.0.2.1", "192.0.2.1"],
  ["unknown", "unknown"],
  ["::ffff:192.0.2.1", "192.0.2.1"],
  ["::ffff:c000:201", "192.0.2.1"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:DB8:0001:2::9", "2001:db8:1:2::/64"],
  ["2001:db8::1", "2001:db8:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
])("%s is limited as %s", (address, network) => {
  expect(clientNetwork(address)).toBe(network);
});
