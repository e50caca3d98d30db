/** Questions that are being answered, for marks on all screens. */

export interface Work {
  readonly id: string | null;
  /** Whether it waits for an approval. */
  readonly waits: boolean;
}

class Working {
  list: readonly Work[] = $state.raw([]);

  begin(work: Work): void {
    if (!this.list.includes(work)) this.list = [...this.list, work];
  }

  end(work: Work): void {
    this.list = this.list.filter((one) => one !== work);
  }

  /** The text of a mark, for one conversation or for all. */
  mark(id?: string): "chat.waits" | "chat.works" | null {
    const found = id === undefined ? this.list : this.list.filter((one) => one.id === id);
    return found.some((one) => one.waits) ? "chat.waits" : found.length > 0 ? "chat.works" : null;
  }
}

export const working = new Working();
