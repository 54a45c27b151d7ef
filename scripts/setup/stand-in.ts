/** An image label: the name of the public image that this one, built from Debian, replaces. */
export const STANDS_IN_FOR = "io.airlock.stands-in-for";

export type StandIn = { suite: string; python: string };

const TRIXIE: StandIn = { suite: "trixie", python: "3.13" };
const BOOKWORM: StandIn = { suite: "bookworm", python: "3.11" };

/** The Debian releases that can replace an official Python image, best first; empty for any other. */
export function standInsFor(baseImage: string): StandIn[] {
  const name = /^(?:docker\.io\/)?(?:library\/)?python:(3\.\d+)(?:\.\d+)?(?:-slim)?(?:-[a-z]+)?$/;
  switch (name.exec(baseImage)?.[1]) {
    case "3.13":
      return [TRIXIE, BOOKWORM];
    case "3.11":
      return [BOOKWORM];
    default:
      return [];
  }
}
