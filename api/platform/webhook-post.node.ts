import { lookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { Agent, request } from "undici";
import type { Config } from "../../shared/config/config.ts";
import { addressesOf, isPublicAddress } from "../../shared/process/public-address.node.ts";
import { AddressRefusal, type Post } from "../webhooks/deliver.ts";

/** Bytes of an answer that are read so that its connection can be used again. */
const answerBytes = 16 * 1024;

type Addresses = Pick<Config, "webhook_private_addresses">;
type Resolve = typeof lookup;

/**
 * Sends to addresses on the internet and to those that the operator allows. The connection goes to an
 * address that was checked: its own look-up is the only one.
 */
export function postFromNode(config: Addresses, resolve: Resolve = lookup): Post {
  const isListed = addressesOf(config.webhook_private_addresses);
  const isAllowed = (address: string): boolean => isPublicAddress(address) || isListed(address);
  const dispatcher = new Agent({ connect: { lookup: checkedLookup(isAllowed, resolve) } });
  return async (url, headers, body, signal) => {
    const host = url.hostname.replace(/^\[|\]$/g, "");
    // Node looks up names alone.
    if (isIP(host) !== 0 && !isAllowed(host)) throw privateAddress();
    // A dispatcher without interceptors follows no redirect.
    const answer = await request(url, { method: "POST", headers, body, signal, dispatcher });
    // The status decides: the receiver has the event, whatever the body says.
    void answer.body.dump({ limit: answerBytes, signal }).catch(() => {});
    const retryAfter = answer.headers["retry-after"];
    return { status: answer.statusCode, retryAfter: [retryAfter ?? []].flat()[0] ?? null };
  };
}

/** Fails if any address of the name is not allowed: a hostile name may have a public address as well. */
function checkedLookup(isAllowed: (address: string) => boolean, resolve: Resolve): LookupFunction {
  return (hostname, options, done) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return done(error, "");
      const [first] = addresses;
      if (!first || addresses.some(({ address }) => !isAllowed(address))) {
        return done(privateAddress(), "");
      }
      if (options.all) done(null, addresses);
      else done(null, first.address, first.family);
    });
  };
}

function privateAddress(): AddressRefusal {
  return new AddressRefusal(
    "its host is not on the internet; the operator can allow the address (webhook_private_addresses)",
  );
}
