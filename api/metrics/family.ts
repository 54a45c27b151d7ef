/** A Prometheus metric with its samples, for text format 0.0.4. */
export interface Family {
  name: string;
  type: "counter" | "gauge" | "histogram";
  help: string;
  samples: Sample[];
}

export interface Sample {
  /** Suffix of the name, for the parts of a histogram. */
  suffix?: "_bucket" | "_sum" | "_count";
  labels?: Record<string, string>;
  value: number;
}

export const textFormat = "text/plain; version=0.0.4; charset=utf-8";

export function familiesText(families: Family[]): string {
  return families.map(familyText).join("");
}

function familyText({ name, type, help, samples }: Family): string {
  const lines = samples.map(
    ({ suffix = "", labels = {}, value }) => `${name}${suffix}${labelsText(labels)} ${value}\n`,
  );
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelsText(labels: Record<string, string>): string {
  const parts = Object.entries(labels).map(([label, value]) => `${label}="${escaped(value)}"`);
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
