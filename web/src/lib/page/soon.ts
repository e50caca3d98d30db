/** Work that is wanted often and done together: a moment after it is first wanted, however often that is. */
export class Soon {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly work: () => void,
    readonly ms: number,
  ) {}

  want(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.work();
    }, this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
