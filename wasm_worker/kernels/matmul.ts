/**
 * C += A @ B in float32 for groups of matrices, four columns at a time, inside the memory of the
 * Python that calls it.
 *
 * Each C[i, j] takes the products A[i, k] * B[k, j] for k = 0, 1, ... one after the other; product
 * and sum are rounded apart. So the bits are those of the plain loop over k on any machine. Only
 * columns and rows are worked on side by side, and they do not meet. Relaxed SIMD, whose
 * multiply-add may round once, must stay switched off.
 *
 * A may be read with any strides (transposed, say); the elements of a row of B lie next to each
 * other, and all of C does. Addresses and strides are in bytes. Compiled with AssemblyScript.
 */

/** C (groups, rows, columns) += A (groups, rows, inner) @ B (groups, inner, columns). */
export function matmul(
  a: usize, aGroupStride: i32, aRowStride: i32, aInnerStride: i32,
  b: usize, bGroupStride: i32, bRowStride: i32,
  c: usize,
  groups: i32, rows: i32, inner: i32, columns: i32,
): void {
  const cRowStride = columns * 4;
  for (let group = 0; group < groups; group++) {
    let fromA = a + group * aGroupStride;
    const fromB = b + group * bGroupStride;
    let i = 0;
    for (; i + 4 <= rows; i += 4) {
      fourRows(fromA, aRowStride, aInnerStride, fromB, bRowStride, c, cRowStride, inner, columns);
      fromA += 4 * aRowStride;
      c += 4 * cRowStride;
    }
    for (; i < rows; i++) {
      oneRow(fromA, aInnerStride, fromB, bRowStride, c, inner, 0, columns);
      fromA += aRowStride;
      c += cRowStride;
    }
  }
}

/** Blocks of 4 x 8: eight sums stay in registers while k runs. */
function fourRows(
  a0: usize, aRowStride: i32, aInnerStride: i32,
  b: usize, bRowStride: i32,
  c0: usize, cRowStride: i32,
  inner: i32, columns: i32,
): void {
  const c1 = c0 + cRowStride, c2 = c1 + cRowStride, c3 = c2 + cRowStride;
  let j = 0;
  for (; j + 8 <= columns; j += 8) {
    const at = <usize>j * 4;
    let s00 = v128.load(c0 + at), s01 = v128.load(c0 + at, 16);
    let s10 = v128.load(c1 + at), s11 = v128.load(c1 + at, 16);
    let s20 = v128.load(c2 + at), s21 = v128.load(c2 + at, 16);
    let s30 = v128.load(c3 + at), s31 = v128.load(c3 + at, 16);
    let fromA = a0, fromB = b + at;
    for (let k = 0; k < inner; k++) {
      const b0 = v128.load(fromB), b1 = v128.load(fromB, 16);
      let x = v128.load32_splat(fromA);
      s00 = f32x4.add(s00, f32x4.mul(x, b0));
      s01 = f32x4.add(s01, f32x4.mul(x, b1));
      x = v128.load32_splat(fromA + aRowStride);
      s10 = f32x4.add(s10, f32x4.mul(x, b0));
      s11 = f32x4.add(s11, f32x4.mul(x, b1));
      x = v128.load32_splat(fromA + 2 * aRowStride);
      s20 = f32x4.add(s20, f32x4.mul(x, b0));
      s21 = f32x4.add(s21, f32x4.mul(x, b1));
      x = v128.load32_splat(fromA + 3 * aRowStride);
      s30 = f32x4.add(s30, f32x4.mul(x, b0));
      s31 = f32x4.add(s31, f32x4.mul(x, b1));
      fromA += aInnerStride;
      fromB += bRowStride;
    }
    v128.store(c0 + at, s00); v128.store(c0 + at, s01, 16);
    v128.store(c1 + at, s10); v128.store(c1 + at, s11, 16);
    v128.store(c2 + at, s20); v128.store(c2 + at, s21, 16);
    v128.store(c3 + at, s30); v128.store(c3 + at, s31, 16);
  }
  if (j < columns) {
    oneRow(a0, aInnerStride, b, bRowStride, c0, inner, j, columns);
    oneRow(a0 + aRowStride, aInnerStride, b, bRowStride, c1, inner, j, columns);
    oneRow(a0 + 2 * aRowStride, aInnerStride, b, bRowStride, c2, inner, j, columns);
    oneRow(a0 + 3 * aRowStride, aInnerStride, b, bRowStride, c3, inner, j, columns);
  }
}

/** One row from column `start` on: by fours, then what is left one by one. */
function oneRow(
  a: usize, aInnerStride: i32, b: usize, bRowStride: i32, c: usize,
  inner: i32, start: i32, columns: i32,
): void {
  let j = start;
  for (; j + 4 <= columns; j += 4) {
    const at = <usize>j * 4;
    let sum = v128.load(c + at);
    let fromA = a, fromB = b + at;
    for (let k = 0; k < inner; k++) {
      sum = f32x4.add(sum, f32x4.mul(v128.load32_splat(fromA), v128.load(fromB)));
      fromA += aInnerStride;
      fromB += bRowStride;
    }
    v128.store(c + at, sum);
  }
  for (; j < columns; j++) {
    const at = <usize>j * 4;
    let sum = load<f32>(c + at);
    let fromA = a, fromB = b + at;
    for (let k = 0; k < inner; k++) {
      sum += load<f32>(fromA) * load<f32>(fromB);
      fromA += aInnerStride;
      fromB += bRowStride;
    }
    store<f32>(c + at, sum);
  }
}
