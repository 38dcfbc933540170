// C = A @ B in float32 for groups of matrices, each in row-major order, one invocation a sum.
//
// Terms are added for k = 0, 1, ... one after the other, product and sum rounded apart, ties to
// even. WGSL promises less: a compiler may fuse product and sum, and an adapter may take subnormal
// numbers for zero. So numbers are carried as their bits. Where no subnormal can occur the adapter
// computes; elsewhere a product is made of integers, and a sum at 2^64 times its size.
//
// Infinities are no part of it: where one comes in or out, nobody may use the result.

struct Sizes {
  rows: u32,
  inner: u32,
  columns: u32,
  zero: u32,  // known only when the kernel runs: what passes through it cannot be fused
}

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<u32>;
@group(0) @binding(3) var<uniform> sizes: Sizes;

const SIGN = 0x80000000u;
const SIZE = 0x7fffffffu;  // all but the sign
const MANTISSA_BITS = 23u;
const HIDDEN = 1u << MANTISSA_BITS;  // also the bits of the smallest normal number, 2^-126
const LARGE = 26u << MANTISSA_BITS;  // 2^-101: beside it a subnormal does not change a sum
const TURN = 64u << MANTISSA_BITS;  // times 2^64
const SUBNORMAL_TURNED = 0x1p-85f;  // 2^-149, the unit of subnormals, times 2^64
const UNITS = 0x1p+85f;

struct Parts {
  mantissa: u32,  // in [2^23, 2^24)
  exponent: i32,  // the number is mantissa * 2^(exponent - 150)
}

fn parts(size: u32) -> Parts {
  if (size >= HIDDEN) {
    return Parts((size & (HIDDEN - 1u)) | HIDDEN, i32(size >> MANTISSA_BITS));
  }
  let shift = countLeadingZeros(size) - 8u;
  return Parts(size << shift, 1 - i32(shift));
}

fn times(x: u32, y: u32) -> u32 {
  let sign = (x ^ y) & SIGN;
  if ((x & SIZE) == 0u || (y & SIZE) == 0u) {
    return sign;
  }
  let left = parts(x & SIZE);
  let right = parts(y & SIZE);
  let exponents = left.exponent + right.exponent;
  if (exponents >= 128) {  // at least 2^-126
    if (min(left.exponent, right.exponent) > 0) {
      return bitcast<u32>(bitcast<f32>(x) * bitcast<f32>(y)) ^ sizes.zero;
    }
    // one is subnormal: the same mantissas, with the exponent on one side
    let one_to_two = (127u << MANTISSA_BITS) | (left.mantissa ^ HIDDEN);
    let rest = (u32(exponents - 127) << MANTISSA_BITS) | (right.mantissa ^ HIDDEN);
    return sign | (bitcast<u32>(bitcast<f32>(one_to_two) * bitcast<f32>(rest)) ^ sizes.zero);
  }
  if (exponents < 103) {  // less than half a unit
    return sign;
  }
  // 24 x 24 bits by halves of 12: high * 2^24 + low
  let x1 = left.mantissa >> 12u;
  let x0 = left.mantissa & 0xfffu;
  let y1 = right.mantissa >> 12u;
  let y0 = right.mantissa & 0xfffu;
  let middle = x1 * y0 + x0 * y1;
  let carried = x0 * y0 + ((middle & 0xfffu) << 12u);
  let low = carried & 0xffffffu;
  let high = x1 * y1 + (middle >> 12u) + (carried >> 24u);
  // in units of 2^-149, which are the bits of such a number
  return sign | rounded(high, low, u32(127 - exponents));
}

// high.low / 2^shift to the nearest integer, ties to even; shift from 0 to 24.
fn rounded(high: u32, low: u32, shift: u32) -> u32 {
  let whole = high >> shift;
  // what is left, as a 32-bit fraction whose last bit says whether there is anything beyond
  var rest = low << 8u;
  if (shift > 0u) {
    rest = (high << (32u - shift)) | select(0u, 1u, low != 0u);
  }
  let is_up = rest > SIGN || (rest == SIGN && (whole & 1u) == 1u);
  return whole + select(0u, 1u, is_up);
}

fn turned(x: u32) -> f32 {
  let size = x & SIZE;
  if (size >= HIDDEN) {
    return bitcast<f32>(x + TURN);
  }
  return select(f32(size), -f32(size), (x & SIGN) != 0u) * SUBNORMAL_TURNED;
}

fn plus(x: u32, y: u32) -> u32 {
  let largest = max(x & SIZE, y & SIZE);
  if (largest >= LARGE) {
    return bitcast<u32>(bitcast<f32>(x) + bitcast<f32>(y)) ^ sizes.zero;
  }
  if (largest == 0u) {
    return x & y;  // minus zero only of two
  }
  let sum = bitcast<u32>(turned(x) + turned(y)) ^ sizes.zero;
  let size = sum & SIZE;
  if (size == 0u) {
    return 0u;
  }
  if (size >= TURN + HIDDEN) {
    return sum - TURN;
  }
  return (sum & SIGN) | u32(bitcast<f32>(size) * UNITS);
}

@compute @workgroup_size(8, 8)
fn matmul(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= sizes.columns || at.y >= sizes.rows) {
    return;
  }
  let row = (at.z * sizes.rows + at.y) * sizes.inner;
  let column = at.z * sizes.inner * sizes.columns + at.x;
  var sum = 0u;
  for (var k = 0u; k < sizes.inner; k++) {
    sum = plus(sum, times(a[row + k], b[column + k * sizes.columns]));
  }
  c[(at.z * sizes.rows + at.y) * sizes.columns + at.x] = sum;
}
