import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { tempFolder } from "../shared/testing/temp-folder.ts";

/** Stands for the Node that `npm ci` installs. */
const pinned = "#!/bin/sh\necho pinned >&2\n";

/** Runs `scripts/run` where the machine's Node says that it is new enough, or not. Returns which Node npm ran on. */
function install({ isNewEnough }: { isNewEnough: boolean }): string[] {
  const folder = tempFolder();
  for (const name of ["scripts", "path"]) mkdirSync(join(folder, name));
  copyFileSync("scripts/run", join(folder, "scripts/run"));
  writeFileSync(join(folder, "package-lock.json"), "{}");
  write(join(folder, "path/node"), `#!/bin/sh\nexit ${isNewEnough ? 0 : 1}\n`);
  const npm = `#!/bin/sh
if grep -q pinned "$(command -v node)"; then which=pinned; else which=machine; fi
echo "$which: npm $*" >>${folder}/seen
mkdir -p node_modules/.bin
printf '${pinned.replaceAll("\n", String.raw`\n`)}' >node_modules/.bin/node
chmod +x node_modules/.bin/node
`;
  write(join(folder, "path/npm"), npm);
  execFileSync("sh", [join(folder, "scripts/run"), "x.ts"], {
    env: { PATH: `${join(folder, "path")}:/usr/bin:/bin` },
    stdio: "ignore",
  });
  return readFileSync(join(folder, "seen"), "utf8").trim().split("\n");
}

function write(file: string, text: string): void {
  writeFileSync(file, text);
  chmodSync(file, 0o755);
}

test("npm installs the dependencies once where its Node is new enough", () => {
  expect(install({ isNewEnough: true })).toEqual(["machine: npm ci --no-progress"]);
});

test("where the machine's Node is too old, npm runs again on the pinned one, for the packages that it left out", () => {
  expect(install({ isNewEnough: false })).toEqual([
    "machine: npm ci --no-progress --omit=dev",
    "pinned: npm ci --no-progress",
  ]);
});

test("the generated part of the TypeScript client is made if it is missing, and again if its sources are newer", () => {
  const folder = tempFolder();
  const [made, source] = ["clients/typescript/src/generated.ts", "api/routes/files.ts"];
  for (const name of ["scripts", "node_modules/.bin", dirname(made), dirname(source)]) {
    mkdirSync(join(folder, name), { recursive: true });
  }
  copyFileSync("scripts/run", join(folder, "scripts/run"));
  for (const name of ["package-lock.json", "node_modules/.package-lock.json", source]) {
    writeFileSync(join(folder, name), "");
  }
  const node = join(folder, "node_modules/.bin/node");
  write(node, `#!/bin/sh\ncase $* in *write-typescript.ts) echo made; touch ${made} ;; esac\n`);
  const run = () => execFileSync("sh", [join(folder, "scripts/run"), "x.ts"], { stdio: "pipe" });
  expect([run(), run()].map(String)).toEqual(["made\n", ""]);
  utimesSync(join(folder, source), Date.now() / 1000 + 1, Date.now() / 1000 + 1);
  expect(String(run())).toBe("made\n");
});

test.each([
  ["v22.19.0", "--max-semi-space-size=8 --import tsx x.ts y"],
  ["v24.21.0", "--max-semi-space-size=8 x.ts y"],
])(
  "Node %s gets what it needs to run TypeScript, and a folder for compiled code",
  (version, args) => {
    const folder = tempFolder();
    for (const name of ["scripts", "node_modules/.bin"])
      mkdirSync(join(folder, name), { recursive: true });
    copyFileSync("scripts/run", join(folder, "scripts/run"));
    for (const name of ["package-lock.json", "node_modules/.package-lock.json"]) {
      writeFileSync(join(folder, name), "");
    }
    const said = `case $1 in --version) echo ${version} ;; *) echo "$*; $NODE_COMPILE_CACHE" ;; esac`;
    write(join(folder, "node_modules/.bin/node"), `#!/bin/sh\n${said}\n`);
    const run = (env: NodeJS.ProcessEnv) =>
      String(execFileSync("sh", [join(folder, "scripts/run"), "x.ts", "y"], { env }));
    const { PATH } = process.env;
    expect(run({ PATH })).toBe(`${args}; ${folder}/node_modules/.cache/airlock\n`);
    expect(run({ PATH, NODE_COMPILE_CACHE: "/x" })).toBe(`${args}; /x\n`);
  },
);
