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
  const { told } = await tell(call, session, await askedOf(call, method));
  if (!("error" in told)) return Response.json(told);
  const [code, path, reason] = told.error;
  return refuseCall({ code, message: `${toTheirs(path)}: ${reason}` });
}

/**
 * Gives a file the bytes of another one below the working folder, and removes the latter.
 *
 * @throws Refusal
 */
export async function write(
  call: Call,
  session: string,
  source: string,
  path: string,
): Promise<void> {
  const { told } = await tell(call, session, ["Write", toOurs(source), toOurs(path)]);
  if ("error" in told) throw refusalOf(told.error, path);
}

/**
 * Copies a file of the sandbox to where calls may fetch it.
 *
 * @returns The call that has it as its artifact.
 * @throws Refusal
 */
export async function copyOut(call: Call, session: string, path: string): Promise<string> {
  const copy = `/tmp/.download-${crypto.randomUUID()}`;
  const { told, jobId } = await tell(call, session, ["Read", toOurs(path), copy], [copy]);
  if ("error" in told) throw refusalOf(told.error, path);
  // Also for a client that has hung up.
  await post({ ...call, signal: new AbortController().signal }, `/sessions/${session}/execute`, {
    command: ["rm", "-f", copy],
  });
  return jobId;
}

type Fault = [code: string, path: string, reason: string];

const refusalOf = ([code, , reason]: Fault, path: string): Refusal =>
  new Refusal({ not_found: 404, permission_denied: 403 }[code] ?? 400, `${path}: ${reason}`);

/** Arguments of the program. @throws Refusal */
async function askedOf(call: Call, method: string): Promise<unknown[]> {
  if (method === "Move") {
    const { source, destination } = await parseBody(Move, await call.text(), 400);
    return [method, toOurs(source), toOurs(destination)];
  }
  if (!["Stat", "ListDir", "MakeDir", "Remove"].includes(method)) {
    throw new Refusal(501, `This service has no ${method}.`);
  }
  const { path, depth } = await parseBody(Path, await call.text(), 400);
  return [method, toOurs(path), depth];
}

/** Runs the program. @param fetch Files that become artifacts of the call. */
async function tell(call: Call, session: string, args: unknown[], fetch: string[] = []) {
  const command = ["python3", "-I", "-c", program, JSON.stringify(args), homeFolder];
  const asked = { command, ...(fetch.length > 0 && { fetch }) };
  const result = SyncResult.parse(await post(call, `/sessions/${session}/execute`, asked));
  if (result.error) throw new Refusal(500, result.error.message);
  return { told: Told.parse(JSON.parse(result.stdout)), jobId: result.job_id };
}

const program = `import datetime, grp, json, os, pwd, shutil, stat, sys
(method, path, option), home = json.loads(sys.argv[1]), sys.argv[2]
kinds = {stat.S_IFREG: "FILE", stat.S_IFDIR: "DIRECTORY"}
def name_of(find, number):
    try:
        return find(number)[0]
    except KeyError:
        return "user" if number == 1000 else str(number)
def theirs(path):
    return home + path[7:] if (path + "/").startswith("/output/") else path
def info(path):
    found = target = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    if is_link:
        try:
            target = os.stat(path)
        except OSError:
            target = None
    shown = theirs(path)
    modified = datetime.datetime.fromtimestamp(found.st_mtime, datetime.timezone.utc)
    entry = {
        "name": os.path.basename(shown) or "/",
        "type": "FILE_TYPE_" + kinds.get(target and stat.S_IFMT(target.st_mode), "UNSPECIFIED"),
        "path": shown,
        "size": str(found.st_size),
        "mode": target and stat.S_IMODE(target.st_mode) or 0,
        "permissions": stat.filemode(found.st_mode),
        "owner": name_of(pwd.getpwuid, found.st_uid),
        "group": name_of(grp.getgrgid, found.st_gid),
        "modifiedTime": modified.isoformat().replace("+00:00", "Z"),
    }
    if is_link:
        entry["symlinkTarget"] = theirs(os.path.realpath(path)) if target else shown
    return entry
def below(path, depth):
    names = set(os.listdir(path))
    if path == "/":
        names.discard("output")
    if path == "/home":
        names.add("user")
    for name in sorted(names):
        one = "/output" if (path, name) == ("/home", "user") else os.path.join(path, name)
        try:
            yield info(one)
            if depth > 1 and os.path.isdir(one) and not os.path.islink(one):
                yield from below(one, depth - 1)
        except OSError:
            # The entry is gone, or may not be read.
            pass
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
    if method in ("Read", "Write"):
        if method == "Write":
            os.makedirs(os.path.dirname(option), exist_ok=True)
        with open(path, "rb") as source, open(option, "wb") as to:
            shutil.copyfileobj(source, to)
        if method == "Write":
            os.unlink(path)
        return {}
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return {}
codes = {FileNotFoundError: "not_found", FileExistsError: "already_exists", NotADirectoryError: "invalid_argument", IsADirectoryError: "invalid_argument"}
try:
    told = run()
except OSError as error:
    told = {"error": [codes.get(type(error), "permission_denied"), path, error.strerror or str(error)]}
print(json.dumps(told))
`;
