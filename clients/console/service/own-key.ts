import { signal } from "@preact/signals";
import type { OwnKey, Scope } from "../../typescript/src/generated.ts";
import { api } from "./client.ts";

/** The key of this tab; undefined until the service has said what it may do. */
export const ownKey = signal<OwnKey | undefined>(undefined);

export const getOwnKey = (signal: AbortSignal): Promise<OwnKey> => api.getOwnKey({ signal });

/** For requests that are not sent without the scope: browsers log each refusal. */
export const hasScope = (scope: Scope): boolean => ownKey.value?.scopes.includes(scope) === true;

/** For actions that are offered until it is known that the key may not do them. */
export const lacksScope = (scope: Scope): boolean => ownKey.value?.scopes.includes(scope) === false;
