/** How code of a language runs. Each `{file}` in an argument is the path of the code. */
export interface Language {
  /** Name of the file in /code that has the code. */
  readonly file: string;
  /** The compiler with its arguments, if there is one. It may write to /tmp. */
  readonly compile?: string[] | undefined;
  /** The program with its arguments, before those of the job. */
  readonly run: string[];
  /** The programs that the language needs; default: the first words of both commands. */
  readonly programs?: string[];
  /** Arguments with which its program says its version; default: --version. */
  readonly tellVersion?: string[];
  /** The least version of its program. */
  readonly since?: string;
}

const out = "/tmp/a.out";

/**
 * Shell text that compiles C#. Mono ignores a failed `Debug.Assert`, whereas .NET ends the program with status 134. So a
 * listener that ends the program is compiled with the code, and the configuration file beside the program names it.
 */
const compileCsharp = `cat >/tmp/assert.cs <<'end' && cat >/tmp/a.exe.config <<'end' && exec mcs -d:DEBUG -out:/tmp/a.exe "$@" /tmp/assert.cs
class AirlockAssert : System.Diagnostics.DefaultTraceListener {
  public override void Fail(string message, string detail) {
    System.Console.Out.Flush();
    System.Console.Error.WriteLine("Assertion failed. " + message + " " + detail);
    System.Console.Error.WriteLine(System.Environment.StackTrace);
    System.Environment.Exit(134);
  }
}
end
<configuration><system.diagnostics><trace><listeners>
<remove name="Default"/><add name="assert" type="AirlockAssert, a"/>
</listeners></trace></system.diagnostics></configuration>
end`;

/** What every job type can run where its image has the program. Source of the commands: the manual of each. */
export const languages: Readonly<Record<string, Language>> = {
  bash: { file: "main.sh", run: ["bash", "{file}"] },
  c: {
    file: "main.c",
    compile: ["gcc", "-std=c17", "-O2", "{file}", "-o", out, "-lm"],
    run: [out],
  },
  cpp: { file: "main.cpp", compile: ["g++", "-std=c++17", "-O2", "{file}", "-o", out], run: [out] },
  csharp: {
    file: "main.cs",
    compile: ["sh", "-c", compileCsharp, "mcs", "{file}"],
    run: ["mono", "/tmp/a.exe"],
    programs: ["mcs", "mono"],
  },
  go: {
    file: "main.go",
    compile: ["go", "build", "-o", out, "{file}"],
    run: [out],
    tellVersion: ["version"],
  },
  java: {
    file: "Main.java",
    compile: ["javac", "-d", "/tmp/classes", "{file}"],
    run: ["java", "-ea", "-cp", "/tmp/classes", "Main"],
  },
  javascript: { file: "main.js", run: ["node", "{file}"] },
  lua: { file: "main.lua", run: ["lua", "{file}"], tellVersion: ["-v"] },
  perl: { file: "main.pl", run: ["perl", "{file}"] },
  php: { file: "main.php", run: ["php", "{file}"] },
  r: { file: "main.R", run: ["Rscript", "{file}"] },
  ruby: { file: "main.rb", run: ["ruby", "{file}"] },
  rust: { file: "main.rs", compile: ["rustc", "-O", "{file}", "-o", out], run: [out] },
  typescript: {
    file: "main.ts",
    run: ["node", "--experimental-strip-types", "{file}"],
    since: "22.6",
  },
};

/** Python as a program like the others. */
export const python: Language = { file: "main.py", run: ["python3", "{file}"] };

/** The file of a language whose name has this ending, such as "cpp"; Python's too. */
export function languageOfFile(name: string): string | undefined {
  const ending = /\.[^./]+$/.exec(name)?.[0];
  if (ending === undefined) return undefined;
  if (ending === ".py") return "python";
  return Object.keys(languages).find((language) => languages[language]!.file.endsWith(ending));
}
