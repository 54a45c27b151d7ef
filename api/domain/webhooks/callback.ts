/**
 * Whether a configured host allows an address: its scheme (HTTPS unless the entry begins with http://),
 * its name (`*.` stands for one or more labels) and its port.
 */
export function isAllowedCallback(url: string, hosts: readonly string[]): boolean {
  const { protocol, hostname, port } = new URL(url);
  return hosts.some((entry) => {
    const isPlain = entry.startsWith("http://");
    if (protocol !== (isPlain ? "http:" : "https:")) return false;
    const place = isPlain ? entry.slice("http://".length) : entry;
    const [, name = "", givenPort = ""] = /^(.*?)(?::([0-9]+))?$/.exec(place) ?? [];
    if (Number(givenPort || defaultPort(protocol)) !== Number(port || defaultPort(protocol))) {
      return false;
    }
    return name.startsWith("*.") ? hostname.endsWith(name.slice(1)) : hostname === name;
  });
}

const defaultPort = (protocol: string): number => (protocol === "https:" ? 443 : 80);
