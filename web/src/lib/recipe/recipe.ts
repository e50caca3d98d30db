/**
 * A recipe: steps that call tools, one after the other. It is stored as plain Python, and parsed from that.
 *
 *     step1 = [weather.today(city=item) for item in ["Rome", "Oslo"] if item != "Oslo"]
 *     step2 = mail.send(text="Today: " + str(step1[0]["sky"])) if step1 else None
 *     step2
 *
 * Code is a recipe only if generating it from the parsed recipe gives the same text, so that nothing is lost.
 */

import { isIdentifier } from "../call/copy-as";
import { isObject, type Json, type JsonObject } from "../text/json-text";
import { piecesOf, withName, type Names, type Path } from "./text";

export const OPERATORS = ["==", "!=", ">", "<", ">=", "<=", "in", "is", "not"] as const;
export type Operator = (typeof OPERATORS)[number];

/** `in`: the left value contains the right one. `is`, `not`: the left value is true or false in Python. */
export interface Condition {
  left: Json;
  operator: Operator;
  right: Json;
}

export interface Step {
  name: string;
  tool: string; // its name in code
  args: JsonObject;
  each: Json | undefined; // a list: the step runs for each `item`
  when: Condition | null;
}

export interface Recipe {
  steps: Step[];
  result: Json;
}

export const ITEM = "item";

/** The names that a step can use: the recipe's arguments, earlier steps, and its item. */
export function namesAt(recipe: Recipe, index: number, inputs: readonly string[]): Set<string> {
  const names = new Set([...inputs, ...recipe.steps.slice(0, index).map((one) => one.name)]);
  if (recipe.steps[index]?.each !== undefined) names.add(ITEM);
  return names;
}

export function freeName(recipe: Recipe, inputs: readonly string[]): string {
  const taken = new Set([...inputs, ...recipe.steps.map((one) => one.name)]);
  let number = recipe.steps.length + 1;
  while (taken.has(`step${number}`)) number += 1;
  return `step${number}`;
}

/** The recipe with an argument renamed. */
export function renamedIn(recipe: Recipe, from: string, to: string, inputs: readonly string[]): Recipe {
  const steps = recipe.steps.map((step, index): Step => {
    const names = namesAt(recipe, index, inputs);
    const other = <T extends Json>(value: T): T => withName(value, from, to, names);
    const each = step.each === undefined ? undefined : other(step.each);
    return {
      ...step,
      args: other(step.args),
      each,
      when: step.when && { ...step.when, left: other(step.when.left), right: other(step.when.right) },
    };
  });
  return { steps, result: withName(recipe.result, from, to, namesAt(recipe, recipe.steps.length, inputs)) };
}

/** Names with a meaning in a recipe's code; `table` only in texts. */
export const OWN_NAMES: ReadonlySet<string> = new Set([ITEM, "row", "str", "table"]);

// As code

export function codeOf(recipe: Recipe, inputs: readonly string[]): string {
  if (recipe.steps.length === 0) return "";
  const lines = recipe.steps.map((step, index) => `${step.name} = ${stepCode(step, namesAt(recipe, index, inputs))}`);
  return `${[...lines, valueCode(recipe.result, namesAt(recipe, recipe.steps.length, inputs))].join("\n")}\n`;
}

function stepCode(step: Step, names: Names): string {
  const call = `${step.tool}(${argsCode(step.args, names)})`;
  const when = step.when && conditionCode(step.when, names);
  if (step.each === undefined) return when ? `${call} if ${when} else None` : call;
  return `[${call} for ${ITEM} in ${valueCode(step.each, new Set([...names].filter((one) => one !== ITEM)))}${when ? ` if ${when}` : ""}]`;
}

/** Names that are not valid in code go into a dictionary. */
function argsCode(args: JsonObject, names: Names): string {
  const entries = Object.entries(args);
  const others = entries.filter(([name]) => !isIdentifier(name));
  const plain = entries
    .filter(([name]) => isIdentifier(name))
    .map(([name, value]) => `${name}=${valueCode(value, names)}`);
  return [...plain, ...(others.length > 0 ? [`**${valueCode(Object.fromEntries(others), names)}`] : [])].join(", ");
}

export function conditionCode({ left, operator, right }: Condition, names: Names): string {
  const [one, other] = [valueCode(left, names), valueCode(right, names)];
  if (operator === "is") return one;
  if (operator === "not") return `not ${one}`;
  return operator === "in" ? `${other} in ${one}` : `${one} ${operator} ${other}`;
}

export function valueCode(value: Json, names: Names): string {
  if (typeof value === "string") return textCode(value, names);
  if (Array.isArray(value)) return `[${value.map((one) => valueCode(one, names)).join(", ")}]`;
  if (isObject(value))
    return `{${Object.entries(value)
      .map(([key, one]) => `${JSON.stringify(key)}: ${valueCode(one, names)}`)
      .join(", ")}}`;
  const words: Record<string, string> = { true: "True", false: "False", null: "None" };
  return words[String(value)] ?? String(value);
}

function textCode(text: string, names: Names): string {
  const pieces = piecesOf(text, names);
  const isMixed = pieces.length > 1;
  const parts = pieces.map((piece) => {
    if (typeof piece === "string") return JSON.stringify(piece);
    if (piece.columns) return tableCode(piece.path, piece.columns);
    return isMixed ? `str(${pathCode(piece.path)})` : pathCode(piece.path);
  });
  return parts.join(" + ") || '""';
}

const pathCode = ([name, ...steps]: Path): string =>
  `${String(name)}${steps.map((one) => `[${JSON.stringify(one)}]`).join("")}`;

/** Rows as a table in Markdown. */
function tableCode(path: Path, columns: readonly string[]): string {
  const names = columns.map((one) => JSON.stringify(one));
  const cells = names.map((one) => `str(row.get(${one}, ""))`);
  const head = `[[${names.join(", ")}], [${names.map(() => '"---"').join(", ")}]]`;
  return `"\\n".join("| " + " | ".join(row) + " |" for row in ${head} + [[${cells.join(", ")}] for row in ${pathCode(path)}])`;
}
