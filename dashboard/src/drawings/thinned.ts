/** Of more items than a drawing has room for: every second, third and so on. */

/** As they were, `most` at the most; the newest one, which is the last, is always among them. */
export function thinned<Item>(items: readonly Item[], most: number): Item[] {
  const step = Math.max(1, Math.ceil(items.length / most));
  return items.filter((_, at) => (items.length - 1 - at) % step === 0);
}
