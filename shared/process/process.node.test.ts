import { once } from "node:events";
import { createReadStream, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { expect, it, test } from "vitest";
import { ConfigError } from "../config/config.ts";
import { tempFolder } from "../testing/test-file.ts";
import { readConfig } from "./files.node.ts";
import { freed, partBytes, toWeb } from "./parts.node.ts";
import { isPublicAddress } from "./public-address.node.ts";

const folder = tempFolder();

function fileWith(toml: string): string {
  const path = join(folder, "airlock.toml");
  writeFileSync(path, toml);
  return path;
}

test("the environment wins over the file that AIRLOCK_CONFIG names", () => {
  const AIRLOCK_CONFIG = fileWith('port = 1\nhost = "127.0.0.2"\n[job_types.ml]\ncpu_limit = 2');
  const config = readConfig({ AIRLOCK_CONFIG, AIRLOCK_PORT: "2" });
  expect([config.port, config.host, config.job_types["ml"]?.cpu_limit]).toEqual([
    2,
    "127.0.0.2",
    2,
  ]);
});

test("a job type's dockerfile of one line is read from a file beside airlock.toml", () => {
  const AIRLOCK_CONFIG = fileWith('[job_types.ml]\ndockerfile = "ml.dockerfile"');
  expect(() => readConfig({ AIRLOCK_CONFIG })).toThrow(
    'job type ml, dockerfile: there is no file "ml.dockerfile": one line is the name of a file',
  );
  writeFileSync(join(folder, "ml.dockerfile"), "RUN true");
  expect(readConfig({ AIRLOCK_CONFIG }).job_types["ml"]?.dockerfile).toBe("RUN true\n");
});

test("a missing file that AIRLOCK_CONFIG names is an error; without AIRLOCK_CONFIG the file is optional", () => {
  const AIRLOCK_CONFIG = join(folder, "missing.toml");
  expect(() => readConfig({ AIRLOCK_CONFIG })).toThrow(ConfigError);
  expect(() => readConfig({ AIRLOCK_CONFIG })).toThrow(`${AIRLOCK_CONFIG}: ENOENT`);
  expect(readConfig({ AIRLOCK_CONFIG: "" }).port).toBe(8080);
});

test("the message about malformed TOML is one line that gives the position and not the text", () => {
  const AIRLOCK_CONFIG = fileWith('port = 1\napi_keys = ["hunter2-hunter2-hunter2"\nhost = 1');
  const message = refusal({ AIRLOCK_CONFIG });
  expect(message).toMatch(/airlock\.toml, line \d, column \d+: [a-z ]+/);
  expect(message.split("\n")).toHaveLength(1);
  expect(message).not.toContain("hunter2");
});

function refusal(env: NodeJS.ProcessEnv): string {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("the configuration was accepted");
}

it.each([
  "1.1.1.1",
  "151.101.0.223",
  "100.63.255.255",
  "172.32.0.1",
  "192.169.0.1",
  "223.255.255.255",
  "2606:4700::1111",
  "2a04:4e42::223",
])("%s is public", (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

const others =
  "0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 127.255.255.255 169.254.169.254 168.63.129.16 " +
  "172.16.0.1 " +
  "172.31.255.255 192.0.0.1 192.0.2.1 192.168.1.1 198.19.0.1 198.51.100.1 203.0.113.9 " +
  "224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::ffff:127.0.0.1 " +
  "::ffff:8.8.8.8 ::ffff:a9fe:a9fe 64:ff9b::a9fe:a9fe 64:ff9b:1::1 fe80::1 fe80::1%eth0 " +
  "2606:4700::1%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001::1 2001:db8::1 " +
  "2002:a9fe::1 3fff::1 100::1 5f00::1 localhost 1.1.1 0x7f.1 2130706433 ";
it.each(others.split(" "))("%s is not public", (address) => {
  expect(isPublicAddress(address)).toBe(false);
});

const MiB = 1024 ** 2;

test("a large file that passes leaves little in memory at any time", async () => {
  const path = fileWith("");
  truncateSync(path, 256 * MiB);
  const heldBytes = () => process.memoryUsage().arrayBuffers;
  const before = heldBytes();
  let [most, passed] = [0, 0];
  for await (const part of toWeb(freed(createReadStream(path, { highWaterMark: partBytes })))) {
    most = Math.max(most, heldBytes() - before);
    passed += part.length;
  }
  expect(passed).toBe(256 * MiB);
  expect(most).toBeLessThan(32 * MiB);
});

test("a web stream has the parts of its stream as they are, and its errors", async () => {
  const stream = new PassThrough();
  const part = Buffer.from("part");
  stream.write(part);
  const reader = toWeb(stream).getReader();
  expect((await reader.read()).value).toBe(part);
  stream.destroy(new Error("cut"));
  await expect(reader.read()).rejects.toThrow("cut");
});

test("a web stream that nobody wants ends its stream, also before its first part", async () => {
  const stream = createReadStream(fileWith("x"));
  await once(stream, "open");
  await toWeb(stream).cancel();
  expect(stream.destroyed).toBe(true);
  await once(stream, "close");
});
