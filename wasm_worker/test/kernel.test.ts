import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { asSideModule, joinMemory, type Kernel } from "../src/kernel";
import { bitsOf, plainMatmul, wildNumbers, type Sizes } from "../src/plain";

const MODULE = new Uint8Array(readFileSync(new URL("../build/matmul.wasm", import.meta.url)));
const MEMORY = new WebAssembly.Memory({ initial: 64 });
const F32 = new Float32Array(MEMORY.buffer);
const COMPILED = new WebAssembly.Module(MODULE);
const KERNEL = new WebAssembly.Instance(COMPILED, { env: { memory: MEMORY } })
  .exports as unknown as Kernel;

function byKernel(
  a: Float32Array, b: Float32Array, c: Float32Array,
  { groups, rows, inner, columns }: Sizes, turned: boolean,
): Float32Array {
  const atB = a.length, atC = atB + b.length;
  F32.set(b, atB);
  F32.set(c, atC);
  for (let g = 0; g < groups; g++) for (let i = 0; i < rows; i++) for (let k = 0; k < inner; k++) {
    const to = turned ? (g * inner + k) * rows + i : (g * rows + i) * inner + k;
    F32[to] = a[(g * rows + i) * inner + k]!;
  }
  KERNEL.matmul(
    0, 4 * rows * inner, turned ? 4 : 4 * inner, turned ? 4 * rows : 4,
    4 * atB, 4 * inner * columns, 4 * columns,
    4 * atC, groups, rows, inner, columns,
  );
  return F32.slice(atC, atC + c.length);
}

describe("the product has the bits of the plain loop", () => {
  // every way through the blocks: rows by four and alone, columns by eight, by four and alone
  const shapes: [number, number, number, number][] = [
    [1, 1, 1, 1], [1, 4, 3, 8], [1, 5, 7, 13], [3, 9, 17, 31], [2, 3, 64, 4], [1, 8, 1, 16],
    [4, 6, 5, 3], [1, 7, 0, 9], [0, 4, 4, 4],
  ];
  for (const [groups, rows, inner, columns] of shapes) {
    for (const turned of [false, true]) {
      test(`${groups} of (${rows}, ${inner}) @ (${inner}, ${columns}), A turned: ${turned}`, () => {
        const sizes = { groups, rows, inner, columns };
        const a = wildNumbers(1, groups * rows * inner);
        const b = wildNumbers(3, groups * inner * columns);
        const c = wildNumbers(5, groups * rows * columns);
        const found = byKernel(a, b, c, sizes, turned);
        expect(bitsOf(found)).toEqual(bitsOf(plainMatmul(a, b, c, sizes)));
      });
    }
  }

  test("subnormal numbers and the signs of zeros are kept", () => {
    const sizes = { groups: 1, rows: 4, inner: 2, columns: 8 };
    const a = new Float32Array(8).fill(2 ** -100);
    const b = Float32Array.from({ length: 16 }, (_, i) => (i % 2 ? -0 : 2 ** -45));
    const c = new Float32Array(32).fill(-0);
    const sums = byKernel(a, b, c, sizes, false);
    expect(bitsOf(sums)).toEqual(bitsOf(plainMatmul(a, b, c, sizes)));
    expect(sums[0]).toBe(2 ** -144);
    expect(Object.is(sums[1], -0)).toBe(true);
  });
});

describe("as a side module", () => {
  test("it is still the same module, with the mark in front", () => {
    const marked = new WebAssembly.Module(asSideModule(MODULE) as BufferSource);
    const [section] = WebAssembly.Module.customSections(marked, "dylink.0");
    expect(new Uint8Array(section!)).toEqual(Uint8Array.of(1, 4, 0, 0, 0, 0));
    expect(WebAssembly.Module.exports(marked)).toEqual(WebAssembly.Module.exports(COMPILED));
    expect(WebAssembly.Module.imports(marked)).toEqual([
      { module: "env", name: "memory", kind: "memory" },
    ]);
  });

  test("a module without the product is refused", async () => {
    const loader = { loadWebAssemblyModule: () => Promise.resolve({} as Kernel) };
    await expect(joinMemory(loader, MODULE)).rejects.toThrow("no matmul");
  });
});
