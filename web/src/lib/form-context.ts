/** What the fields of a form share: the schema that `$ref` points into, the errors, and who shows which. */

import { getContext, setContext } from "svelte";

import type { JsonSchema } from "./tool";

export interface FormContext {
  readonly root: JsonSchema;
  /** What is wrong with the value at this pointer. */
  errorsAt: (pointer: string) => string[];
  /** A field says that it is there: errors below it that have no field of their own are shown at it. */
  know: (pointer: string) => () => void;
  /** A field says that its text is not JSON: nothing is sent meanwhile. */
  breakAt: (pointer: string) => () => void;
}

const KEY = Symbol("form");
export const shareForm = (context: FormContext): FormContext => setContext(KEY, context);
export const theForm = (): FormContext => getContext(KEY);
