/** The screens and actions in Ctrl-K. Each component adds its own while it is mounted. */

import { untrack } from "svelte";

export interface Action {
  id: string;
  label: string;
  hint?: string;
  run: () => void;
}

class Actions {
  list: Action[] = $state.raw([]);

  /** `$effect(() => actions.offer([…]))` */
  offer(offered: Action[]): () => void {
    this.list = [...untrack(() => this.list), ...offered];
    return () => untrack(() => (this.list = this.list.filter((one) => !offered.includes(one))));
  }
}

export const actions = new Actions();
