/** The product that all others are held to, and numbers that show a difference. */

import { mixed } from "./known_answers";

export interface Sizes {
  readonly groups: number;
  readonly rows: number;
  readonly inner: number;
  readonly columns: number;
}

/** C + A @ B: terms in order; one product, rounded, then one sum, rounded. */
export function plainMatmul(
  a: Float32Array, b: Float32Array, c: Float32Array, { rows, inner, columns }: Sizes,
): Float32Array {
  const sums = c.slice();
  for (let at = 0; at < sums.length; at++) {
    const j = at % columns, row = Math.floor(at / columns), g = Math.floor(row / rows);
    for (let k = 0; k < inner; k++) {
      const product = Math.fround(a[row * inner + k]! * b[(g * inner + k) * columns + j]!);
      sums[at] = Math.fround(sums[at]! + product);
    }
  }
  return sums;
}

/** Numbers of very different sizes: another order or rounding shows in their sums. */
export function wildNumbers(seed: number, count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) =>
    mixed(seed, i) * 2 ** ((mixed(seed + 1, i) & 31) - 47));
}

export function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.slice().buffer);
}
