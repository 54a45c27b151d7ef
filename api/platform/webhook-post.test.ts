import type { LookupAddress } from "node:dns";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Receiver, receiverSecret, startReceiver } from "../testing/receiver.ts";
import { signedHeaders } from "../webhooks/rules.ts";
import { postFromNode } from "./webhook-post.node.ts";
import { isLocal } from "./webhook-post.worker.ts";

describe("post", () => {
  let receiver: Receiver;
  beforeAll(async () => {
    receiver = await startReceiver();
  });
  afterAll(() => receiver.close());

  /** A name server that gives these answers one after the other. */
  function names(...answers: string[][]) {
    const asked: string[] = [];
    const resolve = (
      name: string,
      _options: object,
      done: (e: null, a: LookupAddress[]) => void,
    ) => {
      const addresses = answers[Math.min(asked.length, answers.length - 1)] ?? [];
      asked.push(name);
      done(
        null,
        addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
      );
    };
    return { asked, resolve: resolve as never };
  }

  const event = JSON.stringify({
    type: "execution.succeeded",
    timestamp: "2026-11-21T09:30:00.140Z",
    data: {
      job_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
      tenant: "default",
      status: "succeeded",
      job_type: "default",
      attempt: 1,
      created_at: "2026-11-21T09:30:00.140Z",
      started_at: null,
      ended_at: "2026-11-21T09:30:00.140Z",
      exit_code: 0,
      error: null,
      correlation_id: "c",
      links: { record: "/", result: "/" },
    },
  });

  async function post(url: string, allowed: string[], resolve?: never) {
    const call = { id: "evt_1", timestamp: Math.floor(Date.now() / 1000), body: event };
    const headers = await signedHeaders(call, [receiverSecret]);
    const send = postFromNode({ webhook_private_addresses: allowed }, resolve);
    return send(new URL(url), headers, event, AbortSignal.timeout(20_000));
  }

  describe("an address", () => {
    const port = () => new URL(receiver.url).port;

    test("that the operator allows is called, by name and by number, with one look-up", async () => {
      const { asked, resolve } = names(["127.0.0.1"]);
      const named = `http://hooks.example:${port()}/`;
      expect(await post(named, ["127.0.0.0/8"], resolve)).toMatchObject({ status: 204 });
      expect(asked).toEqual(["hooks.example"]);
      expect(await post(receiver.url, ["127.0.0.1"])).toMatchObject({ status: 204 });
      expect(receiver.received.at(-2)?.headers.host).toBe(`hooks.example:${port()}`);
    });

    test.each([
      ["127.0.0.1"],
      ["10.1.2.3"],
      ["169.254.169.254"],
      ["::1"],
      ["fd00::1"],
      ["::ffff:127.0.0.1"],
      ["64:ff9b::7f00:1"],
      ["1.1.1.1", "127.0.0.1"],
    ])("that is private is not called: a name with %s %s", async (...addresses) => {
      const { resolve } = names(addresses);
      const called = post(`http://hooks.example:${port()}/`, [], resolve);
      await expect(called).rejects.toThrow("its host is not on the internet");
    });

    test.each([
      "http://127.0.0.1:1/",
      "http://2130706433:1/",
      "http://0x7f.1:1/",
      "http://[::1]:1/",
      "http://[::ffff:7f00:1]:1/",
      "http://0.0.0.0:1/",
      "http://169.254.169.254/latest/meta-data",
      "http://localhost:1/",
    ])("that is private is not called: %s", async (url) => {
      await expect(post(url, [])).rejects.toThrow("is not on the internet");
    });

    test("of a name that is public at first and private then is not called the second time", async () => {
      const { asked, resolve } = names(["127.0.0.1"], ["10.0.0.1"]);
      const before = receiver.received.length;
      const send = postFromNode({ webhook_private_addresses: ["127.0.0.1"] }, resolve);
      const call = { id: "evt_1", timestamp: Math.floor(Date.now() / 1000), body: event };
      const headers = await signedHeaders(call, [receiverSecret]);
      const post = (own: object) =>
        send(
          new URL(`http://hooks.example:${port()}/`),
          { ...headers, ...own },
          event,
          AbortSignal.timeout(20_000),
        );
      // Without keep-alive: an open connection would be used again without a look-up.
      expect(await post({ connection: "close" })).toMatchObject({ status: 204 });
      await expect(post({})).rejects.toThrow("its host is not on the internet");
      expect(asked).toHaveLength(2);
      expect(receiver.received.length).toBe(before + 1);
    });
  });
});

const hostOf = (url: string) => new URL(url).hostname.replace(/^\[|\]$/g, "");

test.each([
  "http://127.0.0.1",
  "http://2130706433",
  "http://0x7f.1",
  "http://1.1.1.1",
  "http://[::1]",
  "http://localhost",
  "http://LOCALHOST.",
  "http://a.localhost",
  "http://db.internal",
  "http://printer.local",
  "http://intranet",
  "http://1.0.0.127.in-addr.arpa",
])("a worker does not call %s", (url) => {
  expect(isLocal(hostOf(url))).toBe(true);
});

test.each(["https://hooks.example", "https://local.example", "https://xn--bcher-kva.example"])(
  "a worker calls %s",
  (url) => {
    expect(isLocal(hostOf(url))).toBe(false);
  },
);
