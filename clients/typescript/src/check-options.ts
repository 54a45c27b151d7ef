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

/** @throws AirlockError that does not show the key. */
export function checkKey(key: string | null | undefined): void {
  // Programs in JavaScript may give null.
  if (key !== undefined && key !== null && !/^[\x21-\x7e]+$/.test(key)) {
    throw new AirlockError(
      "The API key is empty or has a character that no header can carry, such as a space, a line break or …: copy it again.",
    );
  }
}
