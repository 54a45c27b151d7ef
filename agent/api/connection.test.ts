import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { describeError } from "../../shared/log-line.ts";
import { apiAddress, connectApi } from "./connection.ts";
import { createHttp, type Http } from "./http.ts";
import { makeAuthority, startProxy, startTlsApi } from "../testing/tls-world.ts";
import { fixedToken } from "./token-source.ts";

const token = `ala_${"0".repeat(64)}`;
const never = new AbortController().signal;

let folder: string;
let ours: ReturnType<typeof makeAuthority>;
let other: ReturnType<typeof makeAuthority>;
const ends: (() => unknown)[] = [];

beforeAll(() => {
  folder = tempFolder();
  ours = makeAuthority(folder, "ours");
  other = makeAuthority(folder, "other");
});
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

async function apiFor(host: string, expired = false) {
  const api = await startTlsApi(ours.sign(host, { expired }));
  ends.push(api.close);
  return api;
}

function httpTo(url: string, caFile: string | undefined, env: NodeJS.ProcessEnv = {}): Http {
  const address = apiAddress(url, { allow_plain_http: false, api_ca_file: caFile });
  const dispatcher = connectApi(address, env);
  const http = createHttp({ url, token: fixedToken(token), dispatcher });
  ends.push(http.close);
  return http;
}

const call = (body: string | Readable = "{}") => ({
  method: "POST" as const,
  path: "/renew",
  headers: {},
  body,
  reply: z.object({}),
  timeoutMs: 60_000,
  signal: never,
});

/** Why a call failed, in one line. */
const failure = (http: Http): Promise<string> =>
  http.send(call()).then(() => "no failure", describeError);

describe("the API's certificate", () => {
  it("is accepted if the authority in api_ca_file signed it for the API's name", async () => {
    const api = await apiFor("DNS:localhost");
    await httpTo(api.url, ours.file).send(call());
    expect(api.heard).toEqual([`/agent/v1/renew Bearer ${token} 2`]);
  });

  it.each([
    ["for another name", "DNS:other.example", false, () => ours.file, "api_url must name the API"],
    ["of an unknown authority", "DNS:localhost", false, () => undefined, "api_ca_file must hold"],
    ["of another authority", "DNS:localhost", false, () => other.file, "api_ca_file must hold"],
    [
      "that has expired",
      "DNS:localhost",
      true,
      () => ours.file,
      "renew it there, unless this host's",
    ],
  ])(
    "%s is refused, with what to do, before anything is sent",
    async (_, host, expired, ca, words) => {
      const api = await apiFor(host, expired);
      const why = await failure(httpTo(api.url, ca()));
      expect(why).toContain(`${api.url} is not trusted: its certificate`);
      expect(why).toContain(words);
      expect(api.heard).toEqual([]);
    },
  );

  it("is checked whatever NODE_TLS_REJECT_UNAUTHORIZED says", async () => {
    const api = await apiFor("DNS:other.example");
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    ends.push(() => delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"]);
    expect(await failure(httpTo(api.url, ours.file))).toContain("is not trusted");
    expect(api.heard).toEqual([]);
  });
});

describe("an HTTPS_PROXY", () => {
  it("sees only the API's name and port; requests and uploads go through", async () => {
    const api = await apiFor("DNS:localhost");
    const proxy = await startProxy("user:pass%word");
    ends.push(proxy.close);
    const env = { HTTPS_PROXY: `http://user:pass%25word@127.0.0.1:${proxy.port}` };
    const http = httpTo(api.url, ours.file, env);
    await http.send(call());
    await http.send(call(Readable.from([Buffer.alloc(300_000, "a")])));
    expect(api.heard.map((line) => line.split(" ").at(-1))).toEqual(["2", "300000"]);
    expect(new Set(proxy.seen)).toEqual(new Set([`CONNECT ${new URL(api.url).host}`]));
  });

  it("that refuses or is gone is reported without its password", async () => {
    const api = await apiFor("DNS:localhost");
    const proxy = await startProxy("user:right");
    ends.push(proxy.close);
    for (const port of [proxy.port, 1]) {
      const env = { HTTPS_PROXY: `http://user:s3cret@127.0.0.1:${port}` };
      const why = await failure(httpTo(api.url, ours.file, env));
      expect(why).toContain(`no answer from ${api.url}`);
      expect(why).not.toContain("s3cret");
    }
    expect(api.heard).toEqual([]);
  });

  it("is not asked for a host in NO_PROXY", async () => {
    const api = await apiFor("DNS:localhost");
    const env = { HTTPS_PROXY: "http://127.0.0.1:1", NO_PROXY: "example.com,localhost" };
    await httpTo(api.url, ours.file, env).send(call());
    expect(api.heard).toHaveLength(1);
  });

  it.each(["s3cret", "ftp://u:s3cret@proxy.example"])(
    "that is not an address is refused: %s",
    (proxy) => {
      const open = () =>
        connectApi({ url: "https://a.example", ca: undefined }, { HTTPS_PROXY: proxy });
      expect(open).toThrowError("HTTPS_PROXY must be an address such as http://proxy.example:3128");
    },
  );
});

describe("an address", () => {
  const plain = { allow_plain_http: false, api_ca_file: undefined };

  it.each(["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1", "https://a.example"])(
    "%s is accepted",
    (url) => {
      expect(apiAddress(url, plain)).toEqual({ url, ca: undefined });
    },
  );

  it.each([
    "http://a.example",
    "http://127.0.0.1.example",
    "http://10.0.0.1",
    "http://localhost.example",
  ])("%s is refused unless allow_plain_http says otherwise", (url) => {
    expect(() => apiAddress(url, plain)).toThrowError(/^api_url = ".*clear; use https:\/\/, or/);
    expect(apiAddress(url, { ...plain, allow_plain_http: true })).toMatchObject({ url });
  });

  it("with an api_ca_file that holds no certificate is refused", () => {
    const empty = join(folder, "empty.pem");
    writeFileSync(empty, "");
    for (const api_ca_file of [empty, join(folder, "missing.pem")]) {
      const open = () => apiAddress("https://a.example", { ...plain, api_ca_file });
      expect(open).toThrowError(/^api_ca_file = ".*\.pem": cannot read a certificate/);
    }
  });
});
