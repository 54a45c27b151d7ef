import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import {
  bracketMatching,
  HighlightStyle,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Extension, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

interface EditorOptions {
  label: string;
  language: "python" | "json" | "text";
  text: string;
  isReadOnly: boolean;
  onChange: (text: string) => void;
}

export interface CodeEditor {
  setText(text: string): void;
  /** Marks a line, from 1, and scrolls to it. */
  markLine(line: number | undefined): void;
  focus(): void;
  close(): void;
}

const colours = HighlightStyle.define([
  {
    tag: [
      tags.keyword,
      tags.operatorKeyword,
      tags.controlKeyword,
      tags.definitionKeyword,
      tags.moduleKeyword,
    ],
    color: "var(--code-keyword)",
  },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--code-comment)" },
  {
    tag: [tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)],
    color: "var(--code-name)",
  },
  { tag: [tags.propertyName], color: "var(--code-name)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", backgroundColor: "var(--sunk)", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunk)", color: "var(--quiet)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 10px 0 12px", minWidth: "36px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine, &.cm-focused .cm-activeLineGutter": {
    backgroundColor: "var(--hover)",
  },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground":
    { backgroundColor: "var(--selection)" },
  ".cm-line.cm-failed": {
    backgroundColor: "var(--failed-back)",
    boxShadow: "inset 3px 0 var(--failed)",
  },
  ".cm-panels": {
    backgroundColor: "var(--raised)",
    color: "var(--text)",
    borderColor: "var(--line)",
  },
  ".cm-searchMatch": { backgroundColor: "var(--found)" },
});

const setFailed = StateEffect.define<number | undefined>();
const failedLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, { effects, changes, state }) {
    let next = marks.map(changes);
    for (const effect of effects) {
      if (!effect.is(setFailed)) continue;
      const line = effect.value;
      const isThere = line !== undefined && line >= 1 && line <= state.doc.lines;
      const mark = Decoration.line({
        class: "cm-failed",
        attributes: { title: "The error was raised here" },
      });
      next = isThere ? Decoration.set([mark.range(state.doc.line(line).from)]) : Decoration.none;
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** The browser would write an inline style into a text that replaces a selection, against the policy. */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  const { main, ranges } = view.state.selection;
  const isPlain = event.inputType === "insertText" && event.data !== null && !event.isComposing;
  if (!isPlain || main.empty || ranges.length > 1 || view.state.readOnly) return false;
  view.dispatch(view.state.replaceSelection(event.data), {
    userEvent: "input.type",
    scrollIntoView: true,
  });
  return true;
}

const languages = { python: python(), json: json(), text: [] };

/** An editor in a shadow root, where its styles are no inline styles. */
export function openEditor(root: ShadowRoot, options: EditorOptions): CodeEditor {
  const { label, language, text, isReadOnly, onChange } = options;
  const editing: Extension = isReadOnly
    ? [EditorState.readOnly.of(true)]
    : [
        history(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        keymap.of([...historyKeymap, indentWithTab]),
      ];
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        drawSelection(),
        bracketMatching(),
        highlightSelectionMatches(),
        search({ top: true }),
        editing,
        keymap.of([...searchKeymap, ...defaultKeymap.filter(({ key }) => key !== "Mod-Enter")]),
        indentUnit.of("    "),
        languages[language],
        syntaxHighlighting(colours),
        theme,
        failedLine,
        EditorView.domEventHandlers({ beforeinput: replaceSelection }),
        EditorView.contentAttributes.of({
          "aria-label": label,
          spellcheck: "false",
          tabindex: "0",
          ...(!isReadOnly && { "aria-description": "Escape, then Tab, leaves the editor." }),
        }),
        EditorView.updateListener.of(({ docChanged, state }) => {
          if (docChanged) onChange(state.doc.toString());
        }),
      ],
    }),
  });
  // Lines are as high as the font says, once it is there.
  void document.fonts.ready.then(() => view.requestMeasure());
  return {
    setText(next) {
      if (view.state.doc.toString() === next) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
    },
    markLine(line) {
      view.dispatch({ effects: setFailed.of(line) });
      if (line === undefined || line < 1 || line > view.state.doc.lines) return;
      // The editor alone: its own way of scrolling would move the page as well.
      view.requestMeasure({
        read: ({ state, scrollDOM }) =>
          view.lineBlockAt(state.doc.line(line).from).top - scrollDOM.clientHeight / 2,
        write: (top, { scrollDOM }) => (scrollDOM.scrollTop = top),
      });
    },
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}
