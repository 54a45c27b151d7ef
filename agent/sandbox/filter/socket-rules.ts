import type { Loopback } from "../../../shared/wire/job-type.ts";
import { from, type Guard, int, masked } from "./guard.ts";

const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
const internetFamilies = [2, 10];
const [STREAM, DATAGRAM, RAW] = [1, 2, 3];
const EACCES = 13;

/** The default of the type, TCP and UDP; other protocols would make the kernel load modules. */
const internetSockets = (types: readonly number[], protocols: readonly number[]): Guard[] =>
  internetFamilies.flatMap((family) =>
    types.flatMap((type) =>
      protocols.map((protocol) => ({
        name: "socket",
        args: [int(0, family), masked(1, 0xf, type), int(2, protocol)],
      })),
    ),
  );

const noInternetSockets = (types: readonly number[]): Guard[] =>
  internetFamilies.flatMap((family) =>
    types.map((type) => ({
      name: "socket",
      args: [int(0, family), masked(1, 0xf, type)],
      errno: EACCES,
    })),
  );

const SOL_SOCKET = 1;
const [IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6] = [0, 6, 41];
const [SO_SNDBUF, SO_RCVBUF] = [7, 8];

/**
 * Options without filters (their compiled code is the host's memory, bounded for all processes together)
 * and without sizes of buffers: those of TCP are no part of a control group v1, and SO_RCVBUF goes over
 * net.ipv4.tcp_rmem. A size is taken and ignored, as the kernel does where it is over its limit.
 */
const boundedOptions: readonly Guard[] = [
  ...[IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6].map((level) => [int(1, level)]),
  // SO_DEBUG to SO_BROADCAST, SO_KEEPALIVE to SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, SO_PASSPIDFD.
  ...[
    from(2, 0, 4),
    from(2, 4, 2),
    int(2, 6),
    int(2, 9),
    from(2, 10, 2),
    from(2, 12, 4),
    from(2, 16, 4),
    from(2, 20, 2),
    from(2, 66, 2),
    int(2, 76),
  ].map((option) => [int(1, SOL_SOCKET), option]),
].map((args) => ({ name: "setsockopt", args }));

const ignoredSizes: readonly Guard[] = [SO_SNDBUF, SO_RCVBUF].map((option) => ({
  name: "setsockopt",
  args: [int(1, SOL_SOCKET), int(2, option)],
  errno: 0,
}));

/** What code may do with sockets other than Unix ones, by the loopback of its job type. */
export const sockets: Readonly<Record<Loopback, readonly Guard[]>> = {
  none: [...noInternetSockets([STREAM, DATAGRAM, RAW]), ...boundedOptions, ...ignoredSizes],
  tcp: [
    ...internetSockets([STREAM], [0, 6]),
    ...noInternetSockets([DATAGRAM, RAW]),
    ...boundedOptions,
    ...ignoredSizes,
  ],
  full: [
    ...internetSockets([STREAM, DATAGRAM], [0, 6, 17]),
    // getifaddrs uses it to read the interfaces.
    { name: "socket", args: [int(0, AF_NETLINK), int(2, NETLINK_ROUTE)] },
    { name: "setsockopt", args: [] },
  ],
};
