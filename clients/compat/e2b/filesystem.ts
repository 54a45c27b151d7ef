import { z } from "zod";
import { SyncResult } from "../../../shared/wire/execution.ts";
import { type Call, parseBody, post, Refusal } from "../facade.ts";
import { refuseCall } from "./connect.ts";
import { homeFolder, toOurs, toTheirs } from "./paths.ts";

const Path = z.object({ path: z.string(), depth: z.int().min(1).default(1) });
const Move = z.object({ source: z.string(), destination: z.string() });

const Told = z.union([
  /** One of Connect's codes, the path and the reason. */
  z.object({ error: z.tuple([z.string(), z.string(), z.string()]) }),
  z.object({ entry: z.unknown() }),
  z.object({ entries: z.array(z.unknown()) }),
  z.object({}).strict(),
]);

/** Calls of filesystem.Filesystem, each by a program inside the sandbox. */
export async function filesystem(call: Call, session: string, method: string): Promise<Response> {
  const told = await tell(call, session, await askedOf(call, method));
  if (!("error" in told)) return Response.json(told);
  const [code, path, reason] = told.error;
  return refuseCall({ code, message: `${toTheirs(path)}: ${reason}` });
}

/** @throws Refusal */
export async function move(
  call: Call,
  session: string,
  source: string,
  destination: string,
): Promise<void> {
  const told = await tell(call, session, ["Move", toOurs(source), toOurs(destination)]);
  if ("error" in told) throw new Refusal(400, `${destination}: ${told.error[2]}`);
}

/** Arguments of the program. @throws Refusal */
async function askedOf(call: Call, method: string): Promise<unknown[]> {
  if (method === "Move") {
    const { source, destination } = parseBody(Move, await call.text(), 400);
    return [method, toOurs(source), toOurs(destination)];
  }
  if (!["Stat", "ListDir", "MakeDir", "Remove"].includes(method)) {
    throw new Refusal(501, `This service has no ${method}.`);
  }
  const { path, depth } = parseBody(Path, await call.text(), 400);
  return [method, toOurs(path), depth];
}

async function tell(call: Call, session: string, args: unknown[]): Promise<z.infer<typeof Told>> {
  const command = ["python3", "-I", "-c", program, JSON.stringify(args), homeFolder];
  const result = SyncResult.parse(await post(call, `/sessions/${session}/execute`, { command }));
  if (result.error) throw new Refusal(500, result.error.message);
  return Told.parse(JSON.parse(result.stdout));
}

const program = `import datetime, grp, json, os, pwd, shutil, stat, sys
(method, path, option), home = json.loads(sys.argv[1]), sys.argv[2]
kinds = {stat.S_IFREG: "FILE", stat.S_IFDIR: "DIRECTORY", stat.S_IFLNK: "SYMLINK"}
def name_of(find, number):
    try:
        return find(number)[0]
    except KeyError:
        return "user" if number == 1000 else str(number)
def info(path):
    found = os.lstat(path)
    shown = home + path[7:] if (path + "/").startswith("/output/") else path
    modified = datetime.datetime.fromtimestamp(found.st_mtime, datetime.timezone.utc)
    entry = {
        "name": os.path.basename(shown) or "/",
        "type": "FILE_TYPE_" + kinds.get(stat.S_IFMT(found.st_mode), "UNSPECIFIED"),
        "path": shown,
        "size": str(found.st_size),
        "mode": stat.S_IMODE(found.st_mode),
        "permissions": stat.filemode(found.st_mode),
        "owner": name_of(pwd.getpwuid, found.st_uid),
        "group": name_of(grp.getgrgid, found.st_gid),
        "modifiedTime": modified.isoformat().replace("+00:00", "Z"),
    }
    if stat.S_ISLNK(found.st_mode):
        entry["symlinkTarget"] = os.readlink(path)
    return entry
def below(path, depth):
    for name in sorted(os.listdir(path)):
        one = os.path.join(path, name)
        yield info(one)
        if depth > 1 and os.path.isdir(one) and not os.path.islink(one):
            yield from below(one, depth - 1)
def run():
    if method == "Stat":
        return {"entry": info(path)}
    if method == "ListDir":
        return {"entries": list(below(path, option))}
    if method == "MakeDir":
        os.makedirs(path)
        return {"entry": info(path)}
    if method == "Move":
        os.makedirs(os.path.dirname(option), exist_ok=True)
        shutil.move(path, option)
        return {"entry": info(option)}
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return {}
codes = {FileNotFoundError: "not_found", FileExistsError: "already_exists", NotADirectoryError: "invalid_argument"}
try:
    told = run()
except OSError as error:
    told = {"error": [codes.get(type(error), "permission_denied"), path, error.strerror or str(error)]}
print(json.dumps(told))
`;
