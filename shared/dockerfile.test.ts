import { describe, expect, test } from "vitest";
import { parseDockerfile, resolveSteps } from "./dockerfile.ts";

const image = { PATH: "/usr/bin", HOME: "/root" };
const resolve = (text: string) => resolveSteps(parseDockerfile(text).steps, image);
const sh = (script: string) => ["/bin/sh", "-c", script];

describe("steps of a dockerfile", () => {
  test.each([
    ["a shell's line", "RUN make all", sh("make all")],
    ["a list", 'RUN ["make", "-j", "a b"]', ["make", "-j", "a b"]],
    [
      "lines that go on, with comments between",
      "RUN a && \\\n# why\n\n  b \\  \n  c",
      sh("a &&   b   c"),
    ],
    ["a heredoc as the script", "RUN <<EOF\na\n  b $X\nEOF", sh("a\n  b $X\n")],
    ["a heredoc without leading tabs", "run <<-EOF\n\ta\n\tEOF", sh("a\n")],
    [
      "a heredoc for a program",
      "RUN python3 - <<'E' >x\nprint(1)\nE",
      sh("python3 - <<'E' >x\nprint(1)\nE\n"),
    ],
    ["what only looks like a heredoc", `RUN echo "a <<EOF" 1<<2`, sh(`echo "a <<EOF" 1<<2`)],
    [
      "a heredoc with a program of its own",
      "RUN <<X\n#!/usr/bin/env python3\nprint(1)\nX",
      sh(
        `f=$(mktemp) && cat >"$f" <<'X' && chmod 700 "$f" && "$f"\n#!/usr/bin/env python3\nprint(1)\nX\n`,
      ),
    ],
    ["another shell", 'SHELL ["/bin/bash", "-ec"]\nRUN a', ["/bin/bash", "-ec", "a"]],
    ["another escape", "# escape=`\nRUN a `\n b\\c", sh("a  b\\\\c")],
  ])("RUN takes %s", (_, text, argv) => {
    expect(resolve(text).steps.filter(({ kind }) => kind === "run")).toMatchObject([{ argv }]);
  });

  test("COPY and ADD write their heredocs, with the variables of unquoted ones", () => {
    const text = `# syntax=docker/dockerfile:1
ENV LANG_=de
WORKDIR /etc
COPY --chmod=755 <<EOF app/$LANG_.ini
lang="$LANG_" \\$x \\n \${none:-"a"}
EOF
ADD <<'a.txt' <<b.txt /srv/
$LANG_
a.txt
b.txt`;
    expect(resolve(text).steps.slice(1)).toEqual([
      {
        kind: "file",
        number: 3,
        line: 4,
        path: "/etc/app/de.ini",
        mode: 0o755,
        text: 'lang="de" $x \\n a\n',
      },
      { kind: "file", number: 4, line: 7, path: "/srv/a.txt", mode: 0o644, text: "$LANG_\n" },
      { kind: "file", number: 5, line: 7, path: "/srv/b.txt", mode: 0o644, text: "" },
    ]);
  });

  test("ENV and LABEL change the image; ARG, WORKDIR and USER count for the lines below", () => {
    const text = `ARG V=3 W=$V
ENV A=1 B="two $HOME" PATH=/opt/$V:$PATH C='$A'
ENV D $A and $B
ENV V=4 E=\${A:+yes}\${none:-\${A}}
LABEL org.example="x y"
WORKDIR /srv
WORKDIR $V
USER \${NOBODY:-nobody}
RUN a
CMD ["x"]`;
    const { steps, notes } = resolve(text);
    expect(
      steps.flatMap((step): readonly unknown[] => (step.kind === "set" ? step.changes : [step])),
    ).toEqual([
      "ENV A=1",
      'ENV B="two /root"',
      "ENV PATH=/opt/3:/usr/bin",
      'ENV C="\\$A"',
      'ENV D="1 and two /root"',
      "ENV V=4",
      "ENV E=yes1",
      'LABEL org.example="x y"',
      {
        kind: "run",
        number: 9,
        line: 9,
        shown: "a",
        argv: sh("a"),
        args: { V: "3", W: "" },
        cwd: "/srv/4",
        user: "nobody",
      },
    ]);
    expect(notes).toEqual(["dockerfile line 10: CMD is skipped: it has no meaning for jobs"]);
  });

  test("FROM comes first, and may use ARG", () => {
    const text = "# base\nARG V=3.13\nFROM python:$V-slim AS base\nARG V\nARG W=1\nRUN a";
    const { from, steps } = parseDockerfile(text);
    expect(from).toBe("python:3.13-slim");
    expect(resolveSteps(steps, image).steps).toEqual([
      {
        kind: "run",
        line: 6,
        argv: sh("a"),
        shown: "a",
        number: 3,
        args: { V: "3.13", W: "1" },
        cwd: "/",
        user: "",
      },
    ]);
  });

  test.each([
    [
      "\n\n\nCOPY a b",
      "line 4: COPY takes a heredoc (COPY <<EOF /opt/x): no files are sent with a build; RUN can fetch them",
    ],
    [
      "ADD https://example.com/a /a",
      "line 1: ADD takes a heredoc (ADD <<EOF /opt/x): no files are sent with a build; RUN can fetch them",
    ],
    ["COPY --from=x /a /b", "line 1: COPY takes no --from"],
    ["COPY --chmod=u+x <<A /b\nA", "line 1: --chmod takes a number such as 755"],
    ["COPY <<A <<B /b\nA\nB", "line 1: COPY needs a folder with a / at its end"],
    ["RUN --mount=type=cache,target=/c a", "line 1: RUN takes no --mount"],
    ["RUN a\\\n b\nRUN <<EOF\na", "line 3: the heredoc has no end: add a line with EOF alone"],
    ["RUN", "line 1: RUN needs an argument"],
    ["FROM a\nRUN b\nFROM c", "line 3: a build has one FROM"],
    ["RUN a\nFROM c", "line 2: FROM comes before all lines but ARG"],
    ["FROM --platform=arm64 c", "line 1: FROM takes the name of an image, without options"],
    ["ONBUILD RUN a", "line 1: ONBUILD is not supported: write its instruction alone"],
    ["MAKE a", "line 1: there is no instruction MAKE"],
    ["ARG V", "line 1: ARG V needs a default (ARG NAME=value): builds have no arguments"],
    ["ENV A", "line 1: ENV A has no value"],
    ["ENV 1A=2", "line 1: 1A is no name of a variable"],
    [
      "LABEL io.airlock.step=x",
      "line 1: io.airlock.step is no name of a label that a build may set",
    ],
    ["SHELL bash", 'line 1: SHELL takes a list such as ["/bin/bash", "-c"]'],
    ["# escape=x\nRUN a", "line 1: escape is \\ or `"],
    [
      "ENV A=${B?x}",
      "line 1: variables have the forms $NAME, ${NAME}, ${NAME:-word} and ${NAME:+word}",
    ],
  ])("%j is refused", (text, message) => {
    expect(() => parseDockerfile(text)).toThrow(`dockerfile ${message}`);
  });
});
