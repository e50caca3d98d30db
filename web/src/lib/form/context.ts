/** The context that a form's fields share: the root schema for `$ref`, the errors, and which field shows which. */

import { getContext, setContext } from "svelte";

import type { Fault } from "../call/invoke";
import type { Json, JsonObject } from "../text/json-text";
import type { JsonSchema, Tool } from "../api/tool";

export interface FormContext {
  readonly root: JsonSchema;
  /** The error of the value at this pointer. */
  errorsAt: (pointer: string) => string[];
  /** Register a field. It also shows errors below it that have no field. */
  know: (pointer: string) => () => void;
  /** Report that a field's text is not JSON: nothing is sent until it is. */
  breakAt: (pointer: string) => () => void;
  /** If values can be picked: ask for one, and pass it to `change`. */
  pick?: Pick;
}

export type Pick = (value: Json | undefined, change: (value: Json) => void) => void;

/** The owner of a form's values: a tool on Try it, or a step of a recipe. */
export interface FormState {
  readonly args: JsonObject;
  readonly shownFaults: readonly Fault[];
  readonly broken: { add: (pointer: string) => unknown; delete: (pointer: string) => unknown };
  change: (args: JsonObject, tool: Tool) => void;
}

const KEY = Symbol("form");
export const shareForm = (context: FormContext): FormContext => setContext(KEY, context);
export const theForm = (): FormContext => getContext(KEY);
