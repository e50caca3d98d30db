/** Batches work: it runs once, a moment after the first request. */
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
