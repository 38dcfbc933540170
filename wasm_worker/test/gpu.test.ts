import { expect, test } from "vitest";
import { faultOf, openGpu, type GpuProduct } from "../src/gpu";
import { plainMatmul } from "../src/plain";

/** The plain loop, but for how a product and a sum are made. */
function productWith(
  termOf: (sum: number, x: number, y: number) => number, flush: (x: number) => number = (x) => x,
): GpuProduct {
  return async (a, b, { groups, rows, inner, columns }) =>
    Float32Array.from({ length: groups * rows * columns }, (_, at) => {
      const j = at % columns, row = Math.floor(at / columns), g = Math.floor(row / rows);
      let sum = 0;
      for (let k = 0; k < inner; k++) {
        const [x, y] = [a[row * inner + k]!, b[(g * inner + k) * columns + j]!];
        sum = flush(Math.fround(termOf(sum, flush(x), flush(y))));
      }
      return sum;
    });
}

const twice = (sum: number, x: number, y: number): number => sum + Math.fround(x * y);

test("a product with the bits of the plain loop has no fault", async () => {
  expect(await faultOf(productWith(twice))).toBeNull();
  const plain: GpuProduct = async (a, b, sizes) =>
    plainMatmul(a, b, new Float32Array(sizes.groups * sizes.rows * sizes.columns), sizes);
  expect(await faultOf(plain)).toBeNull();
});

test("one that rounds product and sum together is refused", async () => {
  expect(await faultOf(productWith((sum, x, y) => sum + x * y))).toBe("rounds otherwise");
});

test("one that takes subnormal numbers for zero is refused", async () => {
  const flush = (x: number): number => (Math.abs(x) < 2 ** -126 ? 0 : x);
  expect(await faultOf(productWith(twice, flush))).toBe("mistakes subnormal numbers");
});

test("one that begins with the first product is refused", async () => {
  const first = productWith((sum, x, y) => (sum === 0 ? Math.fround(x * y) : twice(sum, x, y)));
  expect(await faultOf(first)).toBe("mistakes the signs of zeros");
});

test("one that stays at the largest number is refused", async () => {
  const largest = (2 - 2 ** -23) * 2 ** 127;
  const saturated = productWith((sum, x, y) =>
    Math.max(-largest, Math.min(largest, twice(sum, x, y))));
  expect(await faultOf(saturated)).toBe("mistakes what is too large");
});

test("without an adapter it says so", async () => {
  await expect(openGpu(undefined)).rejects.toThrow("no WebGPU adapter");
});
