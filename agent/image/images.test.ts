import { beforeEach, expect, it } from "vitest";
import { createImages, type ImageStore } from "./images.ts";
import { EngineError } from "../sandbox/errors.ts";

const signal = new AbortController().signal;
const missing = new EngineError("other", "no route to registry", { transient: true });

let calls: string[];
let ids: Record<string, string>;
let pull: ImageStore["pull"];

beforeEach(() => {
  calls = [];
  ids = {};
  pull = () => Promise.reject(missing);
});

function images() {
  return createImages(
    {
      imageId: async (reference) => {
        calls.push(`inspect ${reference}`);
        return ids[reference] ?? null;
      },
      imageNames: async (reference) => [`what is called ${reference}`],
      labelledImageId: async (name, value) => {
        calls.push(`${name}=${value}`);
        return ids[`for ${value}`] ?? null;
      },
      pull: async (reference, signal) => {
        calls.push(`pull ${reference}`);
        await pull(reference, signal);
      },
    },
    signal,
  );
}

it("uses the image itself if it is there, and looks once", async () => {
  ids["python:3"] = "sha256:1";
  const { resolve } = images();
  expect(await Promise.all([resolve("python:3", signal), resolve("python:3", signal)])).toEqual([
    "sha256:1",
    "sha256:1",
  ]);
  expect(await resolve("python:3", signal)).toBe("sha256:1");
  expect(calls).toEqual(["inspect python:3"]);
});

it("else uses the image that stands in for it", async () => {
  ids["for python:3"] = "sha256:2";
  expect(await images().resolve("python:3", signal)).toBe("sha256:2");
  expect(calls).toEqual(["inspect python:3", "io.airlock.stands-in-for=python:3"]);
});

it("else pulls it", async () => {
  pull = async () => {
    ids["python:3"] = "sha256:3";
  };
  expect(await images().resolve("python:3", signal)).toBe("sha256:3");
  expect(calls.at(-2)).toBe("pull python:3");
});

it("else says so, and looks again the next time", async () => {
  const { resolve } = images();
  await expect(resolve("python:3", signal)).rejects.toMatchObject({
    type: "docker_error",
    message: "Image python:3 is not on the agent's host and cannot be pulled: no route to registry",
  });
  ids["python:3"] = "sha256:1";
  expect(await resolve("python:3", signal)).toBe("sha256:1");
});

it("passes on a failure of the engine", async () => {
  const gone = new EngineError("unavailable", "ECONNREFUSED", { transient: true });
  const { resolve } = createImages(
    {
      imageId: () => Promise.reject(gone),
      imageNames: () => Promise.reject(gone),
      labelledImageId: () => Promise.reject(gone),
      pull: () => Promise.reject(gone),
    },
    signal,
  );
  await expect(resolve("python:3", signal)).rejects.toBe(gone);
});

it("looks up an image again after forgetting it", async () => {
  ids["python:3"] = "sha256:1";
  const { resolve, forget } = images();
  await resolve("python:3", signal);
  ids["python:3"] = "sha256:9";
  forget("python:3");
  expect(await resolve("python:3", signal)).toBe("sha256:9");
});

it("lets one job give up a pull while another waits for it", async () => {
  const pulled = Promise.withResolvers<void>();
  pull = () => pulled.promise;
  const { resolve } = images();
  const hasty = new AbortController();
  const first = resolve("python:3", hasty.signal);
  const second = resolve("python:3", signal);
  hasty.abort(new Error("too late"));
  await expect(first).rejects.toThrow("too late");
  ids["python:3"] = "sha256:3";
  pulled.resolve();
  expect(await second).toBe("sha256:3");
});

it.each(["sha256:ab12", "ab12", "AB12", "d"])(
  "%s may be an id: the engine knows its names",
  async (id) => {
    expect(await images().namesOf(id, signal)).toEqual([`what is called ${id}`]);
  },
);

it.each(["python", "ab12:latest", "library/ab12"])("%s is its own name", async (reference) => {
  expect(await images().namesOf(reference, signal)).toEqual([reference]);
});
