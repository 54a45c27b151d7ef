import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { bridges, maxLines } from "./rooms.ts";

/** Rooms in the order of their imports, by top folder: see rooms.ts. */
type Rooms = Readonly<Record<string, readonly string[]>>;

const TESTS = /\.test\.ts$|\/testing\/|^api\/tests\//;
const SPECIFIER = /\b(?:from|import)\s*\(?\s*"([^"]+)"/g;

/**
 * Finds the imports that run against the order of the rooms, and the sources that are in no room.
 *
 * @param files Paths from the project's root, with "/" between folders.
 * @returns One line for each, empty where the rules hold.
 */
export function findWrongImports(
  rooms: Rooms,
  files: readonly string[],
  read = readText,
): string[] {
  return files
    .filter((file) => /\.tsx?$/.test(file) && !file.endsWith(".d.ts") && !TESTS.test(file))
    .flatMap((file) => {
      const order = rooms[topOf(file)];
      if (!order) return [];
      const own = placeOf(order, file);
      if (own === -1) return [`${file} is in no room: add its folder to scripts/test/rooms.ts`];
      return importsOf(file, read(file))
        .filter((target) => !isAllowed(rooms, file, target))
        .map((target) => `${file} must not import ${target}: its room comes later in rooms.ts`);
    });
}

/**
 * Finds circles of imports between files and between rooms, including imports of types. Where rooms.ts lists none, a
 * room is a folder of the top folder with all in it. Tests and what they use are in no room.
 *
 * @returns One line for each, empty where there is none.
 */
export function findCircles(rooms: Rooms, files: readonly string[], read = readText): string[] {
  const imports = files
    .filter((file) => /\.tsx?$/.test(file))
    .flatMap((file) => importsOf(file, read(file)).map((target) => [file, target] as const));
  const roomOf = (file: string): string => {
    const order = rooms[topOf(file)];
    if (order) return order[placeOf(order, file)] ?? file;
    return dirname(file).split("/", 2).join("/");
  };
  const betweenRooms = imports
    .filter((pair) => !pair.some((file) => TESTS.test(file)))
    .map(([file, target]) => ({ from: roomOf(file), to: roomOf(target), by: file }))
    .filter(({ from, to }) => from !== to);
  return [
    ...circlesOf(imports.map(([from, to]) => ({ from, to, by: from }))),
    ...circlesOf(betweenRooms),
  ].map((circle) => `imports run in a circle: ${circle}`);
}

type Arrow = { from: string; to: string; by: string };

function circlesOf(arrows: readonly Arrow[]): string[] {
  const leaving = Map.groupBy(arrows, ({ from }) => from);
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (node: string, path: Arrow[]): void => {
    const start = path.findIndex(({ from }) => from === node);
    if (start !== -1) {
      const steps = path
        .slice(start)
        .map(({ from, by }) => (by === from ? from : `${from} (${by})`));
      found.push([...steps, node].join(" → "));
    } else if (!done.has(node)) {
      for (const arrow of leaving.get(node) ?? []) visit(arrow.to, [...path, arrow]);
      done.add(node);
    }
  };
  for (const node of leaving.keys()) visit(node, []);
  return found;
}

/**
 * Finds the sources and tests that have more lines than the house rules allow.
 *
 * @returns One line for each, empty where the rule holds.
 */
export function findLongFiles(files: readonly string[], read = readText): string[] {
  return files
    .filter((file) => /\.(tsx?|py)$/.test(file))
    .map((file) => ({
      file,
      lines: read(file).trimEnd().split("\n").length,
      most: TESTS.test(file) ? maxLines.test : maxLines.source,
    }))
    .filter(({ lines, most }) => lines > most)
    .map(({ file, lines, most }) => `${file} has ${lines} lines, and may have ${most}: split it`);
}

function readText(file: string): string {
  return readFileSync(file, "utf8");
}

function isAllowed(rooms: Rooms, file: string, target: string): boolean {
  if (topOf(target) === "package.json") return true;
  if (bridges[file]?.includes(dirname(target))) return true;
  if (topOf(target) !== topOf(file)) return topOf(target) === "shared";
  const order = rooms[topOf(file)]!;
  const place = placeOf(order, target);
  return place !== -1 && place <= placeOf(order, file);
}

/** The files of the project that a source imports. */
function importsOf(file: string, text: string): string[] {
  return [...text.matchAll(SPECIFIER)]
    .map(([, specifier]) => specifier!)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => normalize(join(dirname(file), specifier)));
}

function placeOf(order: readonly string[], file: string): number {
  const own = order.indexOf(file);
  return own === -1 ? order.indexOf(dirname(file)) : own;
}

function topOf(file: string): string {
  return file.split("/")[0]!;
}
