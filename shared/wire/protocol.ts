/**
 * The version of the agents' protocol, `<major>.<minor>`. Agents and API of one major version work
 * together by the lower of their minor versions: a newer one asks nothing of an older one that this
 * does not know, and fills in what it does not say. What no older one could take as meant is a new
 * major version.
 *
 * - 1.0: no version is told.
 * - 1.1: agents tell how many GPUs they have and how many of them are free.
 */
export interface ProtocolVersion {
  major: number;
  minor: number;
}

export const ownProtocol: ProtocolVersion = { major: 1, minor: 1 };

/** Header of each request of an agent with its version, and of each answer with that in use. */
export const protocolHeader = "x-airlock-protocol";

/** @param text Of the header; whoever sends none speaks the first version. */
export function readProtocol(text: string | null | undefined): ProtocolVersion | undefined {
  const found = /^(\d{1,4})\.(\d{1,4})$/.exec(text ?? "1.0");
  return found ? { major: Number(found[1]), minor: Number(found[2]) } : undefined;
}

export function writeProtocol({ major, minor }: ProtocolVersion): string {
  return `${major}.${minor}`;
}

/** The version that both speak; undefined where there is none. */
export function commonProtocol(
  a: ProtocolVersion,
  b: ProtocolVersion,
): ProtocolVersion | undefined {
  return a.major === b.major ? { major: a.major, minor: Math.min(a.minor, b.minor) } : undefined;
}

/** Who has to be updated where there is none. */
export function protocolMismatch(api: ProtocolVersion, agent: ProtocolVersion): string {
  const older = api.major < agent.major ? "API" : "agent";
  return `The API speaks version ${writeProtocol(api)} of the agents' protocol, the agent ${writeProtocol(agent)}: update the ${older}.`;
}
