import { describe, expect, it } from "vitest";
import { canonicalRequirement, parseRequirement, RequirementText } from "./requirement.ts";

describe("parseRequirement takes", () => {
  const parts = (name: string, rest: object = {}) => ({
    name,
    extras: [],
    specifiers: [],
    marker: "",
    ...rest,
  });
  it.each([
    ["numpy", parts("numpy")],
    [" numpy ", parts("numpy")],
    ["x", parts("x")],
    ["Zope.Interface__x", parts("zope-interface-x")],
    ["numpy==2.3.4", parts("numpy", { specifiers: ["==2.3.4"] })],
    ["a >= 1.0 , < 2", parts("a", { specifiers: ["<2", ">=1.0"] })],
    ["a(>=1,!=1.5.*)", parts("a", { specifiers: ["!=1.5.*", ">=1"] })],
    ["a==1.*", parts("a", { specifiers: ["==1.*"] })],
    ["a~=1.4.2", parts("a", { specifiers: ["~=1.4.2"] })],
    ["a===1.0", parts("a", { specifiers: ["===1.0"] })],
    [
      "a==1!2.0RC1.post2.dev3+Local.7",
      parts("a", { specifiers: ["==1!2.0rc1.post2.dev3+local.7"] }),
    ],
    [
      "requests[socks, Use_Chardet]>=2",
      parts("requests", { extras: ["socks", "use-chardet"], specifiers: [">=2"] }),
    ],
    ["a[]", parts("a")],
    ["a;python_version<'3.9'", parts("a", { marker: "python_version < '3.9'" })],
    [
      'a>1; (os_name == "nt" or extra=="x") and sys_platform not  in "win32 cygwin"',
      parts("a", {
        specifiers: [">1"],
        marker: '(os_name == "nt" or extra == "x") and sys_platform not in "win32 cygwin"',
      }),
    ],
    ["a; 'linux' in sys_platform", parts("a", { marker: "'linux' in sys_platform" })],
  ])("%j", (text, expected) => {
    expect(parseRequirement(text)).toEqual(expected);
  });
});

describe("hostile 31: parseRequirement refuses", () => {
  it.each([
    "",
    " ",
    "--index-url x",
    "--index-url=https://x",
    "-r /etc/passwd",
    "-e .",
    "-e git+https://x/y",
    "a --index-url x",
    "a==1 --hash=sha256:00",
    "a --no-binary :all:",
    "a @ file:///x",
    "a@https://x/a.whl",
    "a[b] @ https://x/a.whl",
    "git+https://github.com/x/y",
    "https://x/a.whl",
    "file:///etc/shadow",
    "a; echo",
    "a; rm -rf /",
    "a && b",
    "a | b",
    "a`id`",
    "$(id)",
    "${HOME}",
    "a==${HOME}",
    "../x",
    "./x",
    "x/y",
    "/x",
    "~/x",
    "C:\\x",
    "a.whl",
    "a-1.0-py3-none-any.whl",
    "a.tar.gz",
    "a.ZIP",
    "a\nb",
    "a\n--index-url x",
    "a\r",
    "a\t",
    "a\\",
    "a\0",
    "a #x",
    "ä",
    "a\u2028b",
    "a b",
    "a,b",
    "a==",
    "a=1",
    "a==1.zip",
    "a==x",
    "a>=1.*",
    "a~=1",
    "a>=1,",
    "a(>=1",
    "a>=1)",
    "a[b",
    "a[b,]",
    "a[-b]",
    "_a",
    "a_",
    "a;",
    "a; python_version",
    "a; python_version <",
    "a; python_version < 3",
    "a; nonsense == 'x'",
    "a; python_version < '3' or",
    "a; (python_version < '3'",
    "a; python_version < '3\"",
    "a; os_name == '/etc'",
    "a; os_name == '${HOME}'",
    "a; os_name == 'x' # y",
  ])("%j", (text) => {
    expect(parseRequirement(text)).toBeNull();
  });
});

it("writes equal specifiers as the same text, and different ones as different texts", () => {
  const forms = (...texts: string[]) => new Set(texts.map(canonicalRequirement)).size;
  expect(forms("A.b[y,X]>=1,<2", "a-b [x, Y] (<2, >= 1)", "a_b[x,y]<2,>=1")).toBe(1);
  expect(forms("a", "b", "a>1", "a[x]", "a; os_name == 'nt'", "a; os_name == 'NT'")).toBe(6);
});

it.each([
  ["a long name", `${"a".repeat(1_000_000)}!`],
  ["many digits", `a==${"1".repeat(100_000)}!`],
  ["many dots", `a==${"1.".repeat(100_000)}`],
  ["many separators", `a${"-._".repeat(100_000)}`],
])("is fast on %s", (_, text) => {
  const before = process.cpuUsage();
  expect(parseRequirement(text)).toBeNull();
  const { user, system } = process.cpuUsage(before);
  expect(user + system).toBeLessThan(500_000);
});

it("parses the deepest nesting that the length limit allows", () => {
  const text = `a; ${"(".repeat(110)}extra == 'x'${")".repeat(110)}`;
  expect(RequirementText.safeParse(text).success).toBe(true);
  expect(RequirementText.safeParse(`a; ${"(".repeat(250)}`).success).toBe(false);
});

it.each(["a; " + "(".repeat(1_000_000), `a==${"1.".repeat(5_000_000)}!`])(
  "refuses a text above the length limit without parsing it",
  (text) => {
    const { error } = RequirementText.safeParse(text);
    expect(error?.issues.map(({ code }) => code)).toEqual(["too_big"]);
  },
);
