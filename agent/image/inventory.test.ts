import { beforeEach, expect, it } from "vitest";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { createInventory, type Inventory } from "./inventory.ts";
import { EngineError } from "../sandbox/errors.ts";

const signal = new AbortController().signal;

/** Images of the engine, as `imageId` and `labelledImageId` find them. */
let images: string[];
let lookups: number;
let told: number;
let inventory: Inventory;

beforeEach(() => {
  images = ["python:3", "standing in for python:4"];
  lookups = 0;
  told = 0;
  const changes = createChangeSignal();
  changes.subscribe(() => told++);
  const find = (name: string): Promise<string | null> => {
    lookups += 1;
    return Promise.resolve(images.includes(name) ? "sha256:1" : null);
  };
  const store = {
    imageId: find,
    labelledImageId: (_label: string, name: string) => find(`standing in for ${name}`),
  };
  inventory = createInventory(store, changes);
});

it("lists which of the requested images are there, including stand-ins", async () => {
  expect(await inventory.want(["python:3", "python:4", "python:5"], signal)).toBe(false);
  expect(inventory.present()).toEqual(["python:3", "python:4"]);
  expect(told).toBe(1);
});

it("looks only for images that are new to it", async () => {
  await inventory.want(["python:3"], signal);
  lookups = 0;
  expect(await inventory.want(["python:3"], signal)).toBe(true);
  expect(lookups).toBe(0);
  expect(await inventory.want(["python:3", "python:4"], signal)).toBe(false);
  expect(inventory.present()).toEqual(["python:3", "python:4"]);
});

it("notices when it refreshes that an image is gone or new, and reports it once", async () => {
  await inventory.want(["python:3", "python:5"], signal);
  told = 0;
  await inventory.refresh(signal);
  expect(told).toBe(0);
  images = ["python:5"];
  await inventory.refresh(signal);
  expect(inventory.present()).toEqual(["python:5"]);
  expect(told).toBe(1);
});

it("has a newly built image at once", async () => {
  await inventory.want(["python:3"], signal);
  inventory.add("sha256:2");
  expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
});

it("keeps reporting an image that it built until it is gone", async () => {
  images = ["python:3", "sha256:2"];
  inventory.add("sha256:2");
  await inventory.want(["python:3"], signal);
  expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
  images = ["python:3"];
  await inventory.refresh(signal);
  expect(inventory.present()).toEqual(["python:3"]);
});

it("keeps what it knows while the engine does not answer, and throws when it refreshes", async () => {
  const gone = new EngineError("unavailable", "ECONNREFUSED");
  const store = {
    imageId: () => Promise.reject(gone),
    labelledImageId: () => Promise.reject(gone),
  };
  const { want, refresh, present } = createInventory(store, createChangeSignal());
  expect(await want(["python:3"], signal)).toBe(false);
  expect(present()).toEqual([]);
  await expect(refresh(signal)).rejects.toBe(gone);
});
