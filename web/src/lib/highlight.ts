/** Colours for JSON and Python, line by line. Grammars that know more cost 30 KB, which nobody here would see. */

import { StreamLanguage, indentService, type StreamParser, type StringStream } from "@codemirror/language";

interface PythonState {
  quote: string; // of a text over several lines that is open; "" is none
}

const KEYWORDS = new Set(
  "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case".split(" "),
);
const CONSTANTS = new Set(["True", "False", "None"]);
const NUMBER = /^(0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|\d[\d_]*(\.[\d_]*)?([eE][+-]?\d+)?j?)/;

const pythonParser: StreamParser<PythonState> = {
  name: "python",
  startState: () => ({ quote: "" }),
  copyState: (state) => ({ ...state }),
  token(stream, state) {
    if (state.quote) return restOfText(stream, state);
    if (stream.eatSpace()) return null;
    if (stream.match("#")) {
      stream.skipToEnd();
      return "comment";
    }
    const opening = stream.match(/^[rRbBfFuU]{0,2}("""|'''|"|')/) as RegExpMatchArray | null;
    if (opening) {
      state.quote = opening[1] ?? "";
      return restOfText(stream, state);
    }
    if (stream.match(NUMBER)) return "number";
    const word = stream.match(/^[\p{L}_][\p{L}\p{N}_]*/u) as RegExpMatchArray | null;
    if (word) {
      if (KEYWORDS.has(word[0])) return "keyword";
      if (CONSTANTS.has(word[0])) return "bool";
      return stream.match(/^\s*\(/, false) ? "variableName.function" : "variableName";
    }
    stream.next();
    return null;
  },
  languageData: { commentTokens: { line: "#" } },
};

/** Up to the end of the text, or of the line. A text in single quotes ends with its line. */
function restOfText(stream: StringStream, state: PythonState): string {
  while (!stream.eol()) {
    if (stream.match(state.quote)) {
      state.quote = "";
      return "string";
    }
    if (stream.next() === "\\") stream.next();
  }
  if (state.quote.length === 1) state.quote = "";
  return "string";
}

/** A new line is indented as the one above; one step more after a colon or an open bracket. */
const indented = indentService.of((context, at) => {
  const above = context.simulatedBreak === at || at === 0 ? context.lineAt(at, -1) : context.lineAt(at - 1, -1);
  const indent = /^\s*/.exec(above.text)?.[0].length ?? 0;
  return /[:([{]\s*(#.*)?$/.test(above.text) ? indent + context.unit : indent;
});

const jsonParser: StreamParser<null> = {
  name: "json",
  startState: () => null,
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return stream.match(/^\s*:/, false) ? "propertyName" : "string";
    if (stream.match(/^-?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
    if (stream.match(/^(true|false|null)\b/)) return "bool";
    stream.next();
    return null;
  },
};

export const python = [StreamLanguage.define(pythonParser), indented];
export const json = StreamLanguage.define(jsonParser);
