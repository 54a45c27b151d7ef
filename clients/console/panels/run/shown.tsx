import type { ResultItem } from "../../../typescript/src/generated.ts";

const pictures = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Beside the page's own policy: without it, a frame could ask the service for pictures. */
const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:">`;

/** What the code showed, in its order. It comes from the code: it must not run in the page. */
export function Shown({ items, isCut }: { items: ResultItem[]; isCut: boolean }) {
  return (
    <section aria-label="Results">
      <h2>Results</h2>
      {items.map((item) => (
        <div key={item.number} class={item.main ? "shown main" : "shown"}>
          <Item {...item} />
        </div>
      ))}
      {isCut && (
        <p class="quiet">The code showed more than the service keeps: something is left out.</p>
      )}
    </section>
  );
}

/** As a picture loads no script; as a frame with an empty sandbox runs none. */
function Item({ number, data }: ResultItem) {
  const text = data["text/plain"] ?? "";
  const name = `Result ${number}`;
  const picture = pictures.find((type) => data[type] !== undefined);
  if (picture !== undefined)
    return <img src={`data:${picture};base64,${data[picture]!.replaceAll("\n", "")}`} alt={text} />;
  const svg = data["image/svg+xml"];
  if (svg !== undefined)
    return <img src={`data:image/svg+xml,${encodeURIComponent(svg)}`} alt={text} />;
  const html = data["text/html"];
  if (html !== undefined)
    return <iframe sandbox="" srcdoc={policy + html} title={name} loading="lazy" />;
  return (
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrolled by keyboard
    <pre class="json" tabIndex={0} aria-label={name}>
      {data["text/markdown"] ?? text}
    </pre>
  );
}
