/** From figures to pixels, and round figures along an axis. */

export interface Scale {
  readonly from: number;
  readonly to: number;
  readonly ticks: readonly number[];
}

/** Round figures from below the least to above the greatest, some `wanted` of them. */
export function scaleOf(values: readonly number[], wanted: number): Scale {
  let least = Infinity, greatest = -Infinity;
  for (const value of values) {
    if (value < least) least = value;
    if (value > greatest) greatest = value;
  }
  if (least > greatest) [least, greatest] = [0, 1];
  if (least === greatest) [least, greatest] = [least - 0.5, greatest + 0.5];
  const step = roundStep((greatest - least) / Math.max(1, wanted));
  const first = Math.floor(least / step + 1e-9), last = Math.ceil(greatest / step - 1e-9);
  const ticks = Array.from({ length: last - first + 1 }, (_, at) => rounded((first + at) * step));
  return { from: rounded(first * step), to: rounded(last * step), ticks };
}

/** 1, 2 or 5 of some power of ten: the least that is not less. */
function roundStep(least: number): number {
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * ten).find((step) => step >= least * (1 - 1e-9))
    ?? 10 * ten;
}

function rounded(value: number): number {
  return Number(value.toPrecision(12));
}

export function at(value: number, { from, to }: Scale, length: number): number {
  return ((value - from) / (to - from)) * length;
}
