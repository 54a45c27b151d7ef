import { partsOf } from "../facade.ts";

/** Where E2B's code runs. Here it is /output. */
export const homeFolder = "/home/user";
const ourFolder = "/output";

/** An absolute path of the sandbox, for one of E2B's. */
export function toOurs(path: string): string {
  return `/${partsOf(homeFolder, path).join("/")}`.replace(/^\/home\/user(?=\/|$)/, ourFolder);
}

export function toTheirs(path: string): string {
  return path.replace(/^\/output(?=\/|$)/, homeFolder);
}

/** Below the folder of files that the service reads and writes; undefined if it is elsewhere. */
export function belowHome(path: string): string | undefined {
  const ours = toOurs(path);
  return ours.startsWith(`${ourFolder}/`) ? ours.slice(ourFolder.length + 1) : undefined;
}
