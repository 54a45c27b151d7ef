import { AirlockError } from "./errors.ts";

/**
 * The address without a slash at its end; that of a page of the console stands for the service's.
 *
 * @throws AirlockError
 */
export function checkUrl(text: string): string {
  const protocol = URL.canParse(text) ? new URL(text).protocol : "";
  if (protocol !== "http:" && protocol !== "https:") {
    throw new AirlockError(
      `"${text}" is not the address of a service: give http://host:port or https://host`,
    );
  }
  return text.replace(/(?<=[^/])\/console(\/.*)?$/, "").replace(/\/+$/, "");
}

/**
 * An empty variable must not become a request for the key's own tenant.
 *
 * @throws AirlockError
 */
export function checkTenant(tenant: string | undefined): void {
  if (tenant === undefined || /^(\*|[a-z0-9][a-z0-9-]{0,62})$/.test(tenant)) return;
  throw new AirlockError(
    `"${tenant}" is not the name of a tenant: it has a to z, 0 to 9 and -, or is * for all.`,
  );
}

/** @throws AirlockError that does not show the key. */
export function checkKey(key: string | null | undefined): void {
  // Programs in JavaScript may give null.
  if (key !== undefined && key !== null && !/^[\x21-\x7e]+$/.test(key)) {
    throw new AirlockError(
      "The API key is empty or has a character that no header can carry, such as a space, a line break or …: copy it again.",
    );
  }
}
