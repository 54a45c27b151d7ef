/**
 * The name under which a client without a key is counted: its IPv4 address, or the /64 of its IPv6
 * address, since a host usually owns a whole /64. Text that is no IPv6 address is returned unchanged.
 */
export function clientNetwork(address: string): string {
  const [withoutZone = ""] = address.split("%");
  if (!withoutZone.includes(":") || !URL.canParse(`http://[${withoutZone}]`)) return address;
  const { hostname } = new URL(`http://[${withoutZone}]`);
  const [head = "", tail] = hostname.slice(1, -1).split("::");
  const before = groups(head);
  const after = groups(tail ?? "");
  const zeros = Array<string>(tail === undefined ? 0 : 8 - before.length - after.length).fill("0");
  const all = [...before, ...zeros, ...after];
  const isMapped = all.slice(0, 6).join() === "0,0,0,0,0,ffff";
  if (isMapped) return all.slice(6).flatMap(bytes).join(".");
  return `${all.slice(0, 4).join(":")}::/64`;
}

function groups(text: string): string[] {
  return text === "" ? [] : text.split(":");
}

function bytes(group: string): number[] {
  const value = Number.parseInt(group, 16);
  return [value >> 8, value & 0xff];
}
