import { readCredentials } from "./credentials.ts";

/** Where an agent's token comes from. */
export type TokenSource = {
  readonly current: () => string;
  /** Reads the token again after the API refused it, and returns whether it has changed. */
  readonly isReplaced: (refused: string) => boolean;
};

export function fixedToken(token: string): TokenSource {
  return { current: () => token, isReplaced: () => false };
}

/** The token that this host got by joining. `rotate` may replace it while the agent runs. */
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
