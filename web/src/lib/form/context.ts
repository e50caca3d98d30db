/** What the fields of a form share: the schema that `$ref` points into, the errors, and who shows which. */

import { getContext, setContext } from "svelte";

import type { Fault } from "../call/invoke";
import type { Json, JsonObject } from "../text/json-text";
import type { JsonSchema, Tool } from "../api/tool";

export interface FormContext {
  readonly root: JsonSchema;
  /** What is wrong with the value at this pointer. */
  errorsAt: (pointer: string) => string[];
  /** A field says that it is there: errors below it that have no field of their own are shown at it. */
  know: (pointer: string) => () => void;
  /** A field says that its text is not JSON: nothing is sent meanwhile. */
  breakAt: (pointer: string) => () => void;
  /** Where values can come from elsewhere: asks for one, and gives it to `change`. */
  pick?: Pick;
}

export type Pick = (value: Json | undefined, change: (value: Json) => void) => void;

/** What a form shows and changes: a trial of a tool, or a step of a recipe. */
export interface FormState {
  readonly args: JsonObject;
  readonly shownFaults: readonly Fault[];
  readonly broken: { add: (pointer: string) => unknown; delete: (pointer: string) => unknown };
  change: (args: JsonObject, tool: Tool) => void;
}

const KEY = Symbol("form");
export const shareForm = (context: FormContext): FormContext => setContext(KEY, context);
export const theForm = (): FormContext => getContext(KEY);
