import { beforeEach, expect, it } from "vitest";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { createInventory, type Inventory } from "./inventory.ts";
import { EngineError } from "../sandbox/types.ts";

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

it("tells which of the images asked about are there, stand-ins included", async () => {
  expect(await inventory.want(["python:3", "python:4", "python:5"], signal)).toBe(false);
  expect(inventory.present()).toEqual(["python:3", "python:4"]);
  expect(told).toBe(1);
});

it("looks only for what is new to it", async () => {
  await inventory.want(["python:3"], signal);
  lookups = 0;
  expect(await inventory.want(["python:3"], signal)).toBe(true);
  expect(lookups).toBe(0);
  expect(await inventory.want(["python:3", "python:4"], signal)).toBe(false);
  expect(inventory.present()).toEqual(["python:3", "python:4"]);
});

it("notices on refreshing that an image has gone or come, and tells of it once", async () => {
  await inventory.want(["python:3", "python:5"], signal);
  told = 0;
  await inventory.refresh(signal);
  expect(told).toBe(0);
  images = ["python:5"];
  await inventory.refresh(signal);
  expect(inventory.present()).toEqual(["python:5"]);
  expect(told).toBe(1);
});

it("has an image at once that was just made", async () => {
  await inventory.want(["python:3"], signal);
  inventory.add("sha256:2");
  expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
});

it("goes on telling of an image it made, until that has gone", async () => {
  images = ["python:3", "sha256:2"];
  inventory.add("sha256:2");
  await inventory.want(["python:3"], signal);
  expect(inventory.present()).toEqual(["python:3", "sha256:2"]);
  images = ["python:3"];
  await inventory.refresh(signal);
  expect(inventory.present()).toEqual(["python:3"]);
});

it("keeps what it knows while the engine fails to answer a question, and throws on refreshing", async () => {
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
