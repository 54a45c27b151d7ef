import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { atEndOfFile } from "../../../shared/testing/end-of-file.ts";
import { shell } from "./raw-engine.ts";
import { type Wheel, wheelBytes, wheelFile } from "./wheel.ts";

export interface IndexOptions {
  /** By default this machine's loopback. */
  readonly address?: string;
  readonly wheels: readonly Wheel[];
  /** Packages given as bytes instead of being built, by file name. */
  readonly sdists?: Readonly<Record<string, Buffer>>;
  /** Paths that redirect to another address. */
  readonly redirects?: Readonly<Record<string, string>>;
  /** `user:password` that every request must carry. */
  readonly credentials?: string;
  readonly tls?: Certificate;
  /** A project whose page is never answered. */
  readonly hanging?: string;
  /** Answers nothing before this resolves. */
  readonly opens?: Promise<void>;
}

/** A package index, the simple repository API (PEP 503), until the end of the test file. */
export interface PackageIndex {
  /** Address of the index, without credentials. */
  readonly url: string;
  readonly requests: readonly string[];
  close(): void;
}

export async function startIndex(options: IndexOptions): Promise<PackageIndex> {
  const { address = "127.0.0.1", wheels, credentials, tls, opens = Promise.resolve() } = options;
  const { sdists = {}, redirects = {}, hanging } = options;
  const requests: string[] = [];

  function handle(request: IncomingMessage, response: ServerResponse): void {
    requests.push(request.url ?? "");
    void opens.then(() => answer(request, response));
  }

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? "";
    const expected = credentials && `Basic ${Buffer.from(credentials).toString("base64")}`;
    if (expected && request.headers.authorization !== expected) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="index"' }).end();
      return;
    }
    const location = redirects[path];
    if (location !== undefined) {
      response.writeHead(302, { location }).end();
      return;
    }
    const sdist = sdists[path.replace("/files/", "")];
    if (sdist) {
      response.end(sdist);
      return;
    }
    const file = wheels.find((wheel) => path === `/files/${wheelFile(wheel)}`);
    if (file) {
      response.end(wheelBytes(file));
      return;
    }
    const project = /^\/simple\/([^/]+)\/$/.exec(path)?.[1];
    if (project !== undefined && project === hanging) return;
    const isOfProject = (file: string): boolean =>
      file.replace(/-[0-9].*/, "").replaceAll("_", "-") === project;
    const found = [...wheels.map(wheelFile), ...Object.keys(sdists)].filter(isOfProject);
    if (found.length === 0) {
      response.writeHead(404).end();
      return;
    }
    const links = found.map((name) => `<a href="/files/${name}">${name}</a>`);
    response.writeHead(200, { "content-type": "text/html" });
    response.end(`<!doctype html><html><body>${links.join("\n")}</body></html>`);
  }

  const server = (tls ? createTlsServer(tls, handle) : createServer(handle)).listen(0, address);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  atEndOfFile(close);
  return {
    url: `${tls ? "https" : "http"}://${address}:${port}/simple/`,
    requests,
    close,
  };
}

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

/** A self-signed certificate for a name, which is its own authority. Made by the image's openssl. */
export async function certificateFor(name: string, image: string): Promise<Certificate> {
  const made = await shell(
    image,
    `openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=airlock-test -keyout /tmp/key \
       -addext subjectAltName=DNS:${name} -out /tmp/cert 2>/dev/null && cat /tmp/key /tmp/cert`,
  );
  const [key = "", cert = ""] = made.split(/(?=-----BEGIN CERTIFICATE)/);
  return { key, cert };
}
