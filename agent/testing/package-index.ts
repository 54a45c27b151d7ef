import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { strToU8, zipSync } from "fflate";
import { atEndOfFile } from "../../shared/testing/test-file.ts";
import { createPackageProxy, readRuntimeSource } from "../packages/proxy.ts";
import type { PipSource } from "../sandbox/job.ts";
import { pipConfig } from "./fakes.ts";
import { shell } from "./raw-engine.ts";

export interface IndexOptions {
  /** By default this machine's loopback. */
  readonly address?: string;
  readonly wheels: readonly Wheel[];
  /** Packages given as bytes instead of being built, by file name. */
  readonly sdists?: Readonly<Record<string, Buffer>>;
  /** Further answers, by path: those of other kinds of registries. */
  readonly others?: Readonly<Record<string, Buffer | string>>;
  /** Paths that redirect to another address. */
  readonly redirects?: Readonly<Record<string, string>>;
  /** `user:password` that every request must carry, or a token. */
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
  const { sdists = {}, others = {}, redirects = {}, hanging } = options;
  const requests: string[] = [];

  function handle(request: IncomingMessage, response: ServerResponse): void {
    requests.push(request.url ?? "");
    void opens.then(() => answer(request, response));
  }

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const path = request.url ?? "";
    const basic = `Basic ${Buffer.from(credentials ?? "").toString("base64")}`;
    const expected = credentials?.includes(":") ? basic : `Bearer ${credentials}`;
    if (credentials && request.headers.authorization !== expected) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="index"' }).end();
      return;
    }
    const location = redirects[path];
    if (location !== undefined) {
      response.writeHead(302, { location }).end();
      return;
    }
    const whole = sdists[path.replace("/files/", "")] ?? others[path];
    if (whole !== undefined) {
      response.end(whole);
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
  return { url: `${tls ? "https" : "http"}://${address}:${port}/simple/`, requests, close };
}

interface Certificate {
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

/** Servers to close after each test. */
export const open: { close(): unknown }[] = [];
/** What could not be reached. */
export const problems: string[] = [];

/** Resets everything for the next test. */
export function closeAll(): void {
  for (const one of open.splice(0)) one.close();
  problems.length = 0;
}

export const wheel = (name: string, source = "", more: object = {}) => ({
  name,
  version: "1.0",
  source,
  ...more,
});

/** An index of packages on this machine, until `closeAll`. */
export async function openIndex(options: Partial<IndexOptions>): Promise<PackageIndex> {
  const index = await startIndex({ wheels: [], ...options });
  open.push(index);
  return index;
}

/** The order that makes pip install from an index. */
export async function pipFrom(
  index: PackageIndex,
  more: Partial<PipSource> = {},
): Promise<PipSource> {
  const { pipEnv, reach } = await readRuntimeSource(pipConfig({ indexUrl: index.url }));
  return {
    pipEnv,
    files: {},
    serve: createPackageProxy(reach, (words) => problems.push(words)),
    keep: null,
    maxBytes: null,
    ...more,
  };
}

/** The message of pip, or of whatever else failed. */
export const failure = (run: Promise<unknown>): Promise<string> =>
  run.then(
    () => "",
    (error: Error) => `${error.name}: ${error.message}`,
  );

/** A package of one module, as a wheel (PEP 427). */
export interface Wheel {
  readonly name: string;
  readonly version: string;
  /** Source of the module. */
  readonly source: string;
  /** Its requirements. */
  readonly requires?: readonly string[];
  /** Further files by their paths in site-packages. */
  readonly files?: Readonly<Record<string, string>>;
}

function wheelFile({ name, version }: Wheel): string {
  return `${name}-${version}-py3-none-any.whl`;
}

function wheelBytes(wheel: Wheel): Buffer {
  const { name, version, source, requires = [], files: more = {} } = wheel;
  const info = `${name}-${version}.dist-info`;
  const files: Record<string, string> = {
    ...more,
    [`${name}.py`]: source,
    [`${info}/METADATA`]: [
      "Metadata-Version: 2.1",
      `Name: ${name}`,
      `Version: ${version}`,
      ...requires.map((requirement) => `Requires-Dist: ${requirement}`),
      "",
    ].join("\n"),
    [`${info}/WHEEL`]:
      "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  };
  const record = Object.entries(files).map(([path, text]) => {
    const hash = createHash("sha256").update(text).digest("base64url");
    return `${path},sha256=${hash},${Buffer.byteLength(text)}`;
  });
  files[`${info}/RECORD`] = [...record, `${info}/RECORD,,`, ""].join("\n");
  const zipped: Record<string, Uint8Array> = {};
  for (const [path, text] of Object.entries(files)) zipped[path] = strToU8(text);
  return Buffer.from(
    zipSync(zipped, { level: 0, mtime: new Date(2000, 0), os: 3, attrs: 0o644 << 16 }),
  );
}

/** Writes wheels into a folder, such as `pip_find_links` names. */
export function writeWheels(folder: string, ...wheels: Wheel[]): void {
  for (const wheel of wheels) writeFileSync(join(folder, wheelFile(wheel)), wheelBytes(wheel));
}

/**
 * A package that runs `source` to be built, and needs nothing for it: a tar archive whose build
 * backend is its own. Source: PEP 517, "In-tree build backends"; POSIX ustar, pax(1).
 */
export function sdistBytes(name: string, version: string, source: string): Buffer {
  const folder = `${name}-${version}`;
  const project = `[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n`;
  return tarBytes({
    [`${folder}/PKG-INFO`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`,
    [`${folder}/pyproject.toml`]: project,
    [`${folder}/own.py`]: source,
  });
}

/**
 * What Debian's mirror answers if it has one package alone, whose file is /opt/`name`: the suite "test" below
 * /debian, without signatures. Source: deb(5), "Debian Repository Format".
 */
export function debianWith(name: string, text: string): Record<string, Buffer | string> {
  const control = `Package: ${name}\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@b.example>\nDescription: A test\n`;
  const members: [string, Buffer][] = [
    ["debian-binary", Buffer.from("2.0\n")],
    ["control.tar.gz", tarBytes({ "./control": control })],
    ["data.tar.gz", tarBytes({ [`./opt/${name}`]: text })],
  ];
  const archived = members.flatMap(([member, bytes]) => {
    const [mode, size] = ["100644".padEnd(8), String(bytes.length).padEnd(10)];
    const line = `${member.padEnd(16)}${"0".padEnd(12)}${"0".padEnd(6)}${"0".padEnd(6)}${mode}${size}\`\n`;
    return [Buffer.from(line), bytes, Buffer.from(bytes.length % 2 === 1 ? "\n" : "")];
  });
  const deb = Buffer.concat([Buffer.from("!<arch>\n"), ...archived]);
  const hash = createHash("sha256").update(deb).digest("hex");
  const packages = `${control}Filename: pool/${name}.deb\nSize: ${deb.length}\nSHA256: ${hash}\n`;
  const listed = createHash("sha256").update(packages).digest("hex");
  const release = `Suite: test\nDate: ${new Date().toUTCString()}\nSHA256:\n ${listed} ${packages.length} Packages\n`;
  return {
    "/debian/test/Release": release,
    "/debian/test/Packages": packages,
    [`/debian/pool/${name}.deb`]: deb,
  };
}

/** What npm's registry at an address answers if it has one package alone, with a script for its installation. */
export function npmWith(
  name: string,
  source: string,
  url: string,
): Record<string, Buffer | string> {
  const described = { name, version: "1.0.0", main: "index.js", scripts: { install: "exit 9" } };
  const tar = tarBytes({
    "package/package.json": JSON.stringify(described),
    "package/index.js": source,
  });
  const integrity = `sha512-${createHash("sha512").update(tar).digest("base64")}`;
  const dist = { tarball: `${url}/${name}.tgz`, integrity };
  const versions = { "1.0.0": { ...described, dist } };
  return {
    [`/${name}`]: JSON.stringify({ name, "dist-tags": { latest: "1.0.0" }, versions }),
    [`/${name}.tgz`]: tar,
  };
}

function tarBytes(files: Readonly<Record<string, string>>): Buffer {
  const blocks = Object.entries(files).flatMap(([path, text]) => [head(path, text), padded(text)]);
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]));
}

function head(path: string, text: string): Buffer {
  const block = Buffer.alloc(512);
  block.write(path, 0);
  block.write("0000644\0", 100);
  block.write("0000000\0", 108);
  block.write("0000000\0", 116);
  block.write(`${Buffer.byteLength(text).toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write("        0", 148);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function padded(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);
}
