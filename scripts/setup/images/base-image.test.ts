import { once } from "node:events";
import { type Server, type ServerResponse, createServer } from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ensureBaseImage, findBaseImage } from "./base-image.ts";
import { connect } from "../engine/connect.ts";
import { pullImage } from "./pull-image.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

const IMAGE = "registry.test/tool:1";

let dir: string;
let server: Server;
let requests: string[];
/** What the fake engine has, and how it answers a pull. */
let images: string[];
let labelled: {
  Id: string;
  RepoTags: string[] | null;
  Created: string;
  RootFS: { Layers: string[] };
}[];
let pull: (response: ServerResponse) => void;

beforeEach(async () => {
  dir = tempFolder();
  [images, labelled, requests] = [[], [], []];
  server = createServer((request, response) => {
    const url = decodeURIComponent(request.url ?? "");
    requests.push(`${request.method} ${url}`);
    if (url.startsWith("/images/create")) pull(response);
    else if (url.startsWith("/images/json")) response.end(JSON.stringify(labelled));
    else if (images.includes(url.slice("/images/".length, -"/json".length))) response.end("{}");
    else if (inspected(url)) response.end(JSON.stringify(inspected(url)));
    else response.writeHead(404).end('{"message":"no such image"}');
  }).listen(join(dir, "engine.sock"));
  await once(server, "listening");
});

afterEach(() => {
  server.close();
  server.closeAllConnections();
});

/** A labelled image that is asked for by its id. */
const inspected = (url: string) => labelled.find(({ Id }) => url === `/images/${Id}/json`);

const engine = () => connect(`unix://${dir}/engine.sock`);

test("an image that the engine has is used as it is", async () => {
  images = [IMAGE];
  expect(await ensureBaseImage(engine(), IMAGE)).toBe(IMAGE);
  expect(requests).toEqual([`GET /images/${IMAGE}/json`]);
});

test("a stand-in is found by its label", async () => {
  const rest = { Created: "2026-01-01T00:00:00Z", RootFS: { Layers: ["sha256:0"] } };
  labelled = [{ Id: "sha256:1", RepoTags: ["airlock/python:3.13"], ...rest }];
  expect(await findBaseImage(engine(), IMAGE)).toBe("airlock/python:3.13");
  expect(requests[1]).toContain(`{"label":["io.airlock.stands-in-for=${IMAGE}"]}`);
  labelled = [{ Id: "sha256:1", RepoTags: null, ...rest }];
  expect(await findBaseImage(engine(), IMAGE)).toBe("sha256:1");
});

test("an image derived from a stand-in, which has its label, is not a stand-in", async () => {
  const [RepoTags, RootFS] = [["team/app:1"], { Layers: ["sha256:0"] }];
  labelled = [
    { Id: "sha256:3", RepoTags, Created: "2026-01-03T00:00:00Z", RootFS },
    {
      Id: "sha256:2",
      RepoTags,
      Created: "2025-01-01T00:00:00Z",
      RootFS: { Layers: ["sha256:0", "sha256:5"] },
    },
    { Id: "sha256:1", RepoTags: ["airlock/python:3.13"], Created: "2026-01-01T00:00:00Z", RootFS },
  ];
  expect(await findBaseImage(engine(), IMAGE)).toBe("airlock/python:3.13");
  labelled = labelled.slice(1, 2);
  expect(await findBaseImage(engine(), IMAGE)).toBeUndefined();
});

test("a missing image is pulled", async () => {
  pull = (response) => {
    response.write('{"status":"Downloading","id":"a","progressDetail":{"current":5}}\r\n');
    response.end('{"status":"Download complete","id":"a"}\r\n');
  };
  expect(await ensureBaseImage(engine(), IMAGE)).toBe(IMAGE);
  expect(requests.at(-1)).toBe("POST /images/create?fromImage=registry.test/tool&tag=1");
});

test("an image that nobody can pull or replace is an error with the reason and a way out", async () => {
  pull = (response) => response.end('{"error":"manifest unknown"}\r\n');
  await expect(ensureBaseImage(engine(), IMAGE)).rejects.toThrow(
    /registry\.test\/tool:1 is missing and cannot be pulled: manifest unknown[^]*set base_image/,
  );
});

test("a full disk is reported as such", async () => {
  pull = (response) => response.end('{"error":"write /x: no space left on device"}\r\n');
  await expect(ensureBaseImage(engine(), IMAGE)).rejects.toThrow("the engine's disk is full");
});

test.each([
  ["before it answers", () => {}],
  ["half-way", (response: ServerResponse) => void response.write('{"status":"Pulling"}\r\n')],
])("a registry that goes silent %s is given up", async (_when, answer) => {
  pull = answer;
  await expect(pullImage(engine(), IMAGE, 50)).rejects.toThrow("sent nothing for 0.05 s");
});
