/**
 * Version of the agents' protocol. Agents and API must use the same version. A change that either side
 * could misread needs a new version; a new optional field does not.
 */
export const protocolVersion = "3";

/** Header of each request of an agent and of each answer to it. */
export const protocolHeader = "x-airlock-protocol";

/**
 * Why API and agent cannot work together; undefined if they can.
 *
 * @param told The other side's header; undefined in the answer of a proxy.
 */
export function protocolMismatch(
  told: string | undefined,
  speaker: "API" | "agent",
): string | undefined {
  if (told === undefined || told === protocolVersion) return undefined;
  const other = speaker === "API" ? "agent" : "API";
  return `The ${speaker} speaks version ${told.slice(0, 20)} of the agents' protocol, the ${other} version ${protocolVersion}: run the same version of Airlock on both.`;
}
