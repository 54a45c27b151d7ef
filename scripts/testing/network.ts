import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { readProcess } from "../setup/engine/processes.ts";

/**
 * Hosts on a wire of their own: a bridge in this network namespace, and for each host a namespace
 * joined to it by a veth pair. Needs root, `ip`, `tc` and `iptables`.
 */
export type Network = Disposable & {
  /** The address of this side, which the hosts reach. */
  readonly address: string;
  readonly hosts: readonly NetworkHost[];
};

export type NetworkHost = {
  readonly address: string;
  /** A command and its arguments that run what follows them on this host. */
  readonly enter: readonly [string, ...string[]];
  /** Drops every packet that leaves, arrives, or either; no end of a connection hears of it. */
  readonly cut: (which: "out" | "in" | "both") => void;
  /** Loses packets, in both directions, with this probability. */
  readonly lose: (probability: number) => void;
  /** Lets this many kilobits a second leave: what a host sends waits in line, up to a second and a half. */
  readonly slow: (kilobits: number) => void;
  readonly heal: () => void;
};

/** A name says whose it is, so that what a killed process left can be told. */
const prefix = "alk";

export function makeNetwork(size: number): Network {
  removeDead();
  const name = `${prefix}${process.pid}`;
  const subnet = `198.18.${process.pid % 256}`;
  const remove = () => removeNetwork(name);
  try {
    ip("link", "add", name, "type", "bridge");
    ip("addr", "add", `${subnet}.1/24`, "dev", name);
    ip("link", "set", name, "up");
    const hosts = Array.from({ length: size }, (_, i) =>
      makeHost(name, `${name}h${i}`, `${subnet}.${i + 2}`),
    );
    return { address: `${subnet}.1`, hosts, [Symbol.dispose]: remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function makeHost(bridge: string, name: string, address: string): NetworkHost {
  ip("netns", "add", name);
  ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name);
  ip("link", "set", name, "master", bridge, "up");
  ip("-n", name, "addr", "add", `${address}/24`, "dev", "eth0");
  ip("-n", name, "link", "set", "lo", "up");
  ip("-n", name, "link", "set", "eth0", "up");

  const enter = ["nsenter", `--net=/run/netns/${name}`] as const;
  const inside = (...command: string[]) => run(enter[0], enter[1], ...command);
  const drop = (chain: string, ...match: string[]) =>
    inside("iptables", "-w", "-A", chain, ...match, "-j", "DROP");
  const chains = { out: ["OUTPUT"], in: ["INPUT"], both: ["OUTPUT", "INPUT"] };
  return {
    address,
    enter: [...enter],
    cut: (which) => chains[which].forEach((chain) => drop(chain)),
    lose: (probability) => {
      const some = ["-m", "statistic", "--mode", "random", "--probability", String(probability)];
      for (const chain of chains.both) drop(chain, ...some);
    },
    slow: (kilobits) => {
      const rate = ["rate", `${kilobits}kbit`, "burst", "2kb", "latency", "1500ms"];
      inside("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", ...rate);
    },
    heal: () => {
      inside("iptables", "-w", "-F");
      inside("tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo");
    },
  };
}

/** Names of networks that are there, this process's and others'. */
export function networks(): string[] {
  const found = readdirSync("/sys/class/net").concat(namespaces());
  return [...new Set(found.flatMap((name) => /^alk\d+/.exec(name) ?? []))];
}

function removeDead(): void {
  for (const name of networks()) {
    if (!readProcess(Number(name.slice(prefix.length)))) removeNetwork(name);
  }
}

function removeNetwork(name: string): void {
  const isIts = new RegExp(`^${name}(h\\d+)?$`);
  // A namespace takes its veth pair along, but not at once.
  const links = readdirSync("/sys/class/net").filter((link) => isIts.test(link));
  for (const link of links) ip("link", "del", link);
  for (const host of namespaces().filter((other) => isIts.test(other))) ip("netns", "del", host);
}

function namespaces(): string[] {
  return ip("netns", "list")
    .split("\n")
    .map((line) => line.split(" ")[0] ?? "");
}

const ip = (...args: string[]): string => run("ip", ...args);

function run(command: string, ...args: string[]): string {
  const env = { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` };
  return execFileSync(command, args, { encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"] });
}
