import type { Config } from "../../shared/config/config.ts";
import { AddressRefusal, type Post } from "../webhooks/deliver.ts";

/**
 * Sends with the runtime's own fetch, which reaches the internet alone. It does not say where a name
 * leads, so addresses and local names are refused unless the operator allows them.
 */
export function postFromWorker({
  webhook_private_addresses: allowed,
}: Pick<Config, "webhook_private_addresses">): Post {
  return async (url, headers, body, signal) => {
    const host = url.hostname.replace(/^\[|\]$/g, "");
    if (isLocal(host) && !allowed.includes(host)) {
      throw new AddressRefusal("its host is an address or a local name, which Workers do not call");
    }
    const answer = await fetch(url, { method: "POST", headers, body, signal, redirect: "manual" });
    // The status decides: the receiver has the event, whatever the body says.
    await answer.body?.cancel().catch(() => {});
    return { status: answer.status, retryAfter: answer.headers.get("Retry-After") };
  };
}

const localNames =
  /(^|\.)(localhost|local|internal|intranet|lan|home|corp|private|arpa|test|onion)$/;

/** `URL` has already written every form of an IPv4 address with four numbers. */
export function isLocal(host: string): boolean {
  const name = host.replace(/\.$/, "").toLowerCase();
  return (
    name.includes(":") || /^[0-9.]+$/.test(name) || !name.includes(".") || localNames.test(name)
  );
}
