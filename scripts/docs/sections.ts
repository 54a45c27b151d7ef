/**
 * Text with the content of each `<!-- name:begin -->` … `<!-- name:end -->` replaced.
 *
 * @throws Error where a marker is missing.
 */
export function fillSections(text: string, sections: Record<string, string>): string {
  return Object.entries(sections).reduce((filled, [name, content]) => {
    const section = new RegExp(`(<!-- ${name}:begin -->\n)[^]*?(<!-- ${name}:end -->)`);
    if (!section.test(filled)) throw new Error(`the markers of "${name}" are missing`);
    return filled.replace(section, (_all, begin: string, end: string) => begin + content + end);
  }, text);
}
