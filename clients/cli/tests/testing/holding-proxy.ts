import { pass, startHttpProxy } from "../../../../shared/testing/http-proxy.ts";

/** A way to a service on which the answers to requests with this path wait for `release`. */
export async function startHoldingProxy(target: string, path: RegExp) {
  const held = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const proxy = await startHttpProxy(target, (...given) => {
    if (!path.test(given[2].url!)) return pass(...given);
    held.resolve();
    void released.promise.then(() => pass(...given));
  });
  return {
    ...proxy,
    /** Resolves once the service has answered such a request. */
    held: held.promise,
    release: released.resolve,
  };
}
