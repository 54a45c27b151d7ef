/** Source text of any form. */
export const sources = {
  "coding cookie": Buffer.from(
    '# -*- coding: latin-1 -*-\nprint("\xe4\xf6", ascii("\xfc"))\n',
    "latin1",
  ),
  "bad coding cookie": `# coding: nonsense\nprint(1)`,
  "not UTF-8 without a cookie": Buffer.from('print("\xe4")\n', "latin1"),
  "byte order mark": `\ufeffprint("bom")\nraise ValueError`,
  "carriage returns and line feeds": `print("a")\r\nx = """\r\n"""\r\nprint(repr(x))\r\nraise ValueError\r\n`,
  "carriage returns alone": `print("a")\rprint("b")\r`,
  "no newline at the end": `if 1:\n  print("x")\n  raise ValueError  # end`,
  "a line of 1 MB": `x = "${"y".repeat(1_000_000)}"\nprint(len(x))\nraise ValueError(x[:3])`,
  "many lines": `${"x = 1\n".repeat(50_000)}raise ValueError(__import__("sys")._getframe().f_lineno)`,
  "form feed, tabs and line continuation": `\fx = 1 + \\\n\t2\nprint(x)`,
  "deep nesting": `${"(".repeat(150)}1${")".repeat(150)}\nprint("ok")`,
  "non-ASCII names": `größe = 3\nprint(größe)\n1/größe/0`,
  "future import and doc string": `"""doc"""\nfrom __future__ import annotations\nprint(__doc__, annotations)`,
};
