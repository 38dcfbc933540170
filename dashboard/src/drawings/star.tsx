/** One node and those that it is connected with: how far each is away, and by which way. */

import { Drawing } from "./drawing";
import { levelOf, type Bounds } from "./heat";
import { placed, radiusOf, RINGS_MS, type StarPeer } from "./star_layout";

const HALF = 200; // pixels, of a drawing that scales
const NAMED_MAX = 16; // more names would lie over each other

export type Way = "direct" | "inward" | "relayed" | "punched" | "gone";

export const WAY_WORDS: Readonly<Record<Way, string>> = {
  direct: "directly", inward: "it dialled us", relayed: "through a relay",
  punched: "through a hole in a router", gone: "gone",
};

export interface Neighbour extends StarPeer {
  readonly name: string;
  readonly way: Way;
}

export function Star(
  { peers, bounds, words, shown }: {
    peers: readonly Neighbour[]; bounds: Bounds; words: string; shown: (ms: number) => string;
  },
) {
  const places = placed(peers);
  const ways = (Object.keys(WAY_WORDS) as Way[]).filter(
    (way) => peers.some((peer) => peer.way === way));
  const said = (ms: number | null): string => (ms === null ? "not measured" : shown(ms));
  const table = () => ({
    caption: words, columns: ["Node", "Way", "Round trip"],
    rows: peers.map(({ name, way, rttMs }) => [name, WAY_WORDS[way], said(rttMs)]),
  });
  return (
    <Drawing words={words} table={table} below={<Legend ways={ways} />}>
      <svg class="star" viewBox={`${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}`}>
        {RINGS_MS.map((ms) => (
          <g key={ms}>
            <circle class="ring" r={HALF * radiusOf(ms)} />
            <text class="ring-name" y={-HALF * radiusOf(ms) - 3}>{shown(ms)}</text>
          </g>
        ))}
        {peers.map(({ key, way }, at) => (
          <line
            key={key} class={`way ${way}`} x1="0" y1="0"
            x2={HALF * (places[at]?.x ?? 0)} y2={HALF * (places[at]?.y ?? 0)}
          />
        ))}
        <circle class="middle" r="9" />
        {peers.map(({ key, name, way, rttMs }, at) => {
          const x = HALF * (places[at]?.x ?? 0), y = HALF * (places[at]?.y ?? 0);
          const level = rttMs === null ? "none" : String(levelOf(rttMs, bounds));
          return (
            <g key={key} class={`peer ${way}`} transform={`translate(${x} ${y})`}>
              <title>{`${name}: ${WAY_WORDS[way]}, ${said(rttMs)}`}</title>
              {way === "gone" ? <path class="lost" d="M-5-5L5 5M5-5L-5 5" />
                : <circle class={`heat-${level}`} r="6.5" />}
              {peers.length <= NAMED_MAX && (
                <text y={y > 0 ? 20 : -12}>{name}</text>
              )}
            </g>
          );
        })}
      </svg>
    </Drawing>
  );
}

function Legend({ ways }: { ways: readonly Way[] }) {
  return (
    <ul class="legend" aria-hidden="true">
      {ways.map((way) => (
        <li key={way}>
          <svg class="star" width="28" height="8" viewBox="0 -4 28 8">
            <line class={`way ${way}`} x2="28" />
          </svg>
          {WAY_WORDS[way]}
        </li>
      ))}
    </ul>
  );
}
