/** An image label: the name of the public image that this one, built from Debian, replaces. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";

export type StandIn = { suite: string; python: string };

const TRIXIE: StandIn = { suite: "trixie", python: "3.13" };
const BOOKWORM: StandIn = { suite: "bookworm", python: "3.11" };

const BY_PYTHON: Record<string, StandIn[]> = { "3.13": [TRIXIE, BOOKWORM], "3.11": [BOOKWORM] };

const OFFICIAL_PYTHON =
  /^(?:docker\.io\/)?(?:library\/)?python:(3\.\d+)(?:\.\d+)?(?:-slim)?(?:-[a-z]+)?$/;

/** The Debian releases that can replace an official Python image, best first; empty for any other. */
export function standInsFor(baseImage: string): StandIn[] {
  const python = OFFICIAL_PYTHON.exec(baseImage)?.[1];
  return (python && BY_PYTHON[python]) || [];
}
