import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Server } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";

const DAY_MS = 86_400_000;

const openssl = (...args: string[]): void => {
  execFileSync("openssl", args, { stdio: "ignore" });
};

/** A private authority, made by openssl in `folder`, and certificates that it signs. */
export function makeAuthority(folder: string, name: string) {
  const file = (end: string): string => join(folder, `${name}.${end}`);
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const subject = ["-subj", `/CN=${name}`];
  const [caKey, ca] = [file("ca.key"), file("ca.pem")];
  const settings = file("cnf");
  writeFileSync(file("index"), "");
  writeFileSync(settings, settingsOf(folder, file("index")));
  openssl("req", "-x509", ...newKey, "-days", "2", ...subject, "-keyout", caKey, "-out", ca);
  return {
    file: ca,
    /** A certificate for a host, valid for a day from now or until yesterday. */
    sign: (host: string, { expired = false } = {}) => {
      const [key, request, cert, names] = ["key", "csr", "pem", "ext"].map((end) => file(end));
      writeFileSync(names!, `subjectAltName=${host}`);
      openssl("req", ...newKey, ...subject, "-keyout", key!, "-out", request!);
      // `openssl x509` cannot sign what has expired: OpenSSL 3.5 takes no negative number of days, 3.0 no dates.
      const by = ["-config", settings, "-cert", ca, "-keyfile", caKey, "-extfile", names!];
      const from = new Date(Date.now() - (expired ? 2 * DAY_MS : 0));
      const until = new Date(from.getTime() + DAY_MS);
      const dates = ["-startdate", utcTime(from), "-enddate", utcTime(until)];
      openssl("ca", "-batch", "-notext", ...by, ...dates, "-in", request!, "-out", cert!);
      return { key: readFileSync(key!), cert: readFileSync(cert!) };
    },
  };
}

/** Settings of `openssl ca`, which keeps a list of what it signed. */
function settingsOf(folder: string, index: string): string {
  const settings = {
    database: index,
    new_certs_dir: folder,
    rand_serial: "yes",
    unique_subject: "no",
    default_md: "sha256",
    policy: "any",
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  return [
    "[ca]",
    "default_ca = ours",
    "[ours]",
    ...lines,
    "[any]",
    "commonName = supplied",
    "",
  ].join("\n");
}

/** As in a certificate: YYYYMMDDHHMMSSZ. */
function utcTime(date: Date): string {
  return `${date.toISOString().replaceAll(/[-:T]|\..*/g, "")}Z`;
}

/** What an API over TLS received, one line per request: the token and the size of the body. */
export async function startTlsApi(tls: { key: Buffer; cert: Buffer }) {
  const heard: string[] = [];
  const server: Server = createServer(tls, (request, response) => {
    void text(request).then((body) => {
      heard.push(`${request.url} ${request.headers.authorization ?? "-"} ${body.length}`);
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    heard,
    close: () => server.close().closeAllConnections(),
  };
}

/**
 * A proxy that knows CONNECT alone, and notes all that it is shown. It cuts a tunnel in which nothing
 * has come by for `idleMs`.
 */
export async function startProxy(credentials?: string, idleMs = 0) {
  const seen: string[] = [];
  let cuts = 0;
  const open = new Set<Duplex>();
  const server = createHttpServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.writeHead(405).end();
  });
  server.on("connect", (request, client: Socket) => {
    seen.push(`CONNECT ${request.url}`);
    const expected = credentials && `Basic ${Buffer.from(credentials).toString("base64")}`;
    if (expected && request.headers["proxy-authorization"] !== expected) {
      client.end("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
      return;
    }
    const [, port = ""] = (request.url ?? "").split(":");
    const target = connect(Number(port), "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      client.pipe(target).pipe(client);
    });
    for (const end of [client, target]) open.add(end.on("error", () => end.destroy()));
    // Everything that goes to the target came from the client, so one side shows both.
    client.setTimeout(idleMs, () => {
      cuts += 1;
      client.destroy();
      target.destroy();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    seen,
    /** Tunnels cut so far. */
    cuts: () => cuts,
    close: () => {
      open.forEach((end) => end.destroy());
      server.close().closeAllConnections();
    },
  };
}
