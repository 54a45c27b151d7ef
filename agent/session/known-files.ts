/** Which content of which file the API has. */
export interface KnownFiles {
  /** Whether it has this content, which it then has. */
  readonly learn: (file: { readonly name: string; readonly sha256: string }) => boolean;
}

/** Knows the last `most` names: code makes as many as it likes. A file that is forgotten is sent again. */
export function createKnownFiles(most = 10_000): KnownFiles {
  const hashes = new Map<string, string>();
  return {
    learn({ name, sha256 }) {
      const isKnown = hashes.get(name) === sha256;
      hashes.delete(name);
      hashes.set(name, sha256);
      const [oldest] = hashes.keys();
      if (hashes.size > most) hashes.delete(oldest!);
      return isKnown;
    },
  };
}
