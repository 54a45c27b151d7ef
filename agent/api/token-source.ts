import { readCredentials } from "./credentials.ts";

/** Where an agent's token comes from. */
export type TokenSource = {
  readonly current: () => string;
  /** Looks again after a token was refused: whether there is another one by now. */
  readonly isReplaced: (refused: string) => boolean;
};

export function fixedToken(token: string): TokenSource {
  return { current: () => token, isReplaced: () => false };
}

/** The token that this host joined with: `rotate` replaces it while the agent runs. */
export function joinedToken(dataDir: string, token: string): TokenSource {
  let current = token;
  return {
    current: () => current,
    isReplaced: (refused) => {
      current = readCredentials(dataDir)?.token ?? current;
      return current !== refused;
    },
  };
}
