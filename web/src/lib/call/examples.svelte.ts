/** The saved examples of a tool. After a conflict, the examples are reloaded and our change is applied again. */

import { refusal, send, toolPath } from "../api/client";
import { isObject, parseJson, writeJson, type JsonObject } from "../text/json-text";
import type { Tool } from "../api/tool";

export interface Example {
  name: string;
  args: JsonObject;
  description?: string;
}

export class Examples {
  list: Example[] = $state.raw([]);
  #etag: string | null = null;
  readonly #path: string;

  constructor(tool: Tool) {
    this.#path = `${toolPath(tool)}/examples`;
  }

  async load(signal?: AbortSignal): Promise<void> {
    this.#take(await this.#ask({ signal }));
  }

  /** An example of the same name is replaced. */
  async save(example: Example): Promise<void> {
    await this.#change((list) => [...list.filter((one) => one.name !== example.name), example]);
  }

  async remove(name: string): Promise<void> {
    await this.#change((list) => list.filter((one) => one.name !== name));
  }

  async #change(edit: (list: Example[]) => Example[], isAgain = false): Promise<void> {
    const examples = edit(this.list);
    const response = await this.#ask({
      method: "PUT",
      body: `{"examples": ${writeJson(examples)}}`,
      ifMatch: this.#etag,
    });
    if (response.status === 412) {
      if (isAgain) throw refusal(response.status, response.text);
      await this.load();
      return this.#change(edit, true);
    }
    this.#take(response);
  }

  async #ask(sent: Parameters<typeof send>[1]): Promise<{ status: number; text: string; etag: string | null }> {
    const response = await send(this.#path, sent);
    const text = await response.text();
    if (!response.ok && response.status !== 412) throw refusal(response.status, text);
    return { status: response.status, text, etag: response.headers.get("etag") };
  }

  #take({ text, etag }: { text: string; etag: string | null }): void {
    const found = parseJson(text); // not JSON.parse: large integers stay what they are
    const list = isObject(found) && Array.isArray(found.examples) ? found.examples : [];
    this.list = list
      .filter(isObject)
      .map((one) => ({ ...one, name: String(one.name), args: isObject(one.args) ? one.args : {} }) as Example);
    this.#etag = etag;
  }
}
