/** What a browser tells of the computer: here its graphics adapter, or that there is none. */

import { expect, test } from "vitest";
import { adapterOf } from "../src/machine";

/** A browser's WebGPU as it answers `requestAdapter`. */
function gpuThat(answers: () => Promise<unknown>): GPU {
  return { requestAdapter: answers } as unknown as GPU;
}

test("a browser that refuses to tell of adapters offers none, and nothing fails", async () => {
  const refusing = gpuThat(() => Promise.reject(new DOMException("not now", "OperationError")));
  for (const gpu of [undefined, refusing, gpuThat(() => Promise.resolve(null))]) {
    expect(await adapterOf(gpu)).toMatchObject({
      isReal: false, words: expect.stringMatching(/offers no/),
    });
  }
});

test("what is wrong with the page itself is not taken for a refusal", async () => {
  const broken = gpuThat(() => Promise.reject(new TypeError("a mistake of ours")));
  await expect(adapterOf(broken)).rejects.toThrow("a mistake of ours");
});
