/** Where each peer of a star stands: as far from the middle as its round trip is long. */

export interface StarPeer {
  readonly key: string;
  readonly rttMs: number | null;
}

export interface StarPlace {
  readonly x: number; // in halves of the drawing: -1 to 1
  readonly y: number;
}

export const RINGS_MS = [1, 10, 100, 1_000] as const;
const INNER = 0.2; // nobody stands on the node in the middle
const OUTER = 0.86;
const UNKNOWN = 0.96; // outside of all rings

/** By the logarithm: 1 ms and less at the inner ring, a second and more at the outer one. */
export function radiusOf(rttMs: number | null): number {
  if (rttMs === null) return UNKNOWN;
  const share = Math.log10(Math.max(1, Math.min(1_000, rttMs))) / 3;
  return INNER + share * (OUTER - INNER);
}

/** In the order given, round the circle from the top, where the names of the rings are. */
export function placed(peers: readonly StarPeer[]): StarPlace[] {
  return peers.map(({ rttMs }, at) => {
    const angle = (2 * Math.PI * (at + 0.5)) / Math.max(1, peers.length) - Math.PI / 2;
    const radius = radiusOf(rttMs);
    return { x: radius * Math.cos(angle), y: radius * Math.sin(angle) };
  });
}
