/** How strong a cell of a heat map is, and the shapes that a row of them comes to. */

export const LEVELS = 6;

/** Bounds between the levels, ascending; one fewer than there are levels. */
export type Bounds = readonly [number, number, number, number, number];

/** 0 for less than the first bound, and one more for each that is reached. */
export function levelOf(value: number, bounds: Bounds): number {
  return bounds.filter((bound) => value >= bound).length;
}

/** One path for each level that a row has: cells are one wide and one high. */
export function pathsOf(
  values: readonly (number | null)[], bounds: Bounds,
): { level: number; d: string }[] {
  const paths = new Map<number, string>();
  let from = 0;
  while (from < values.length) {
    const level = cellLevel(values[from], bounds);
    let to = from + 1;
    while (to < values.length && cellLevel(values[to], bounds) === level) to += 1;
    if (level !== null) {
      paths.set(level, `${paths.get(level) ?? ""}M${from} 0h${to - from}v1h${from - to}z`);
    }
    from = to;
  }
  return [...paths].sort(([a], [b]) => a - b).map(([level, d]) => ({ level, d }));
}

function cellLevel(value: number | null | undefined, bounds: Bounds): number | null {
  return value === null || value === undefined ? null : levelOf(value, bounds);
}

/** The legend: what each level says. */
export function levelWords(bounds: Bounds, shown: (value: number) => string): string[] {
  return Array.from({ length: LEVELS }, (_, level) => {
    const above = bounds[level - 1], below = bounds[level];
    if (above === undefined) return `under ${shown(bounds[0])}`;
    return below === undefined ? `${shown(above)} or more` : `${shown(above)} to ${shown(below)}`;
  });
}
