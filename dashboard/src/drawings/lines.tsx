/** Curves over a common axis; each has a stroke of its own beside its colour. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Drawing, type Table } from "./drawing";
import { at, scaleOf } from "./scale";
import { thinned } from "./thinned";

const HEIGHT = 200, LEFT = 46, RIGHT = 22, TOP = 10, BOTTOM = 26; // pixels
const WIDTH_FIRST = 640; // before it is measured, or where nobody measures
const TICK_PX = 90;
const ROWS_MAX = 200; // of the table

export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[]; // ascending in x
}

export function Lines(
  { lines, words, axis, shownX, shownY, fromZero = false }: {
    lines: readonly Line[]; // four at the most can be told apart
    words: string;
    axis: string; // what x is
    shownX: (x: number) => string;
    shownY: (y: number) => string;
    fromZero?: boolean; // of y: where twice as much is to look like that
  },
) {
  const [box, width] = useWidth();
  const points = lines.flatMap((line) => line.points);
  const across = scaleOf(points.map(([x]) => x), Math.max(2, width / TICK_PX));
  const up = scaleOf([...(fromZero ? [0] : []), ...points.map(([, y]) => y)], 4);
  const room = { width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM };
  const x = (value: number): number => LEFT + at(value, across, room.width);
  const y = (value: number): number => TOP + room.height - at(value, up, room.height);
  const below = (
    <ul class="legend" aria-hidden="true">
      {lines.map(({ name }, place) => (
        <li key={name}>
          <svg class="curves" width="28" height="8" viewBox="0 -4 28 8">
            <path class={`line line-${place}`} d="M0 0H28" />
          </svg>
          {name}
        </li>
      ))}
    </ul>
  );
  return (
    <Drawing words={words} table={() => tableOf(lines, words, axis, shownX, shownY)} below={below}>
      <div ref={box}>
        <svg class="curves" width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`}>
          {up.ticks.map((tick) => (
            <g key={tick}>
              <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
              <text class="up" x={LEFT - 6} y={y(tick) + 4}>{shownY(tick)}</text>
            </g>
          ))}
          {across.ticks.map((tick) => (
            <text key={tick} class="across" x={x(tick)} y={HEIGHT - 8}>{shownX(tick)}</text>
          ))}
          {lines.map(({ name, points: own }, place) => (
            <path
              key={name} class={`line line-${place}`}
              d={own.map(([px, py], step) => `${step === 0 ? "M" : "L"}${x(px)} ${y(py)}`).join("")}
            />
          ))}
        </svg>
      </div>
    </Drawing>
  );
}

/** Each curve is thinned by itself: of curves that take turns, every second row would be one's. */
export function tableOf(
  lines: readonly Line[], caption: string, axis: string,
  shownX: (x: number) => string, shownY: (y: number) => string,
): Table {
  const each = Math.floor(ROWS_MAX / Math.max(1, lines.length));
  const rows = lines.flatMap(({ name, points }) => (
    thinned(points, each).map(([x, y]) => ({ name, x, y })))).sort((a, b) => a.x - b.x);
  return {
    caption, columns: [axis, "Curve", "Value"],
    rows: rows.map(({ name, x, y }) => [shownX(x), name, shownY(y)]),
  };
}

/** Of the place that is given to the drawing, as it changes. */
function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(WIDTH_FIRST);
  useEffect(() => {
    const place = box.current;
    if (place === null) return;
    const look = (): void => setWidth(Math.max(160, Math.floor(place.clientWidth)));
    const sizes = new ResizeObserver(look);
    sizes.observe(place);
    look();
    return () => sizes.disconnect();
  }, []);
  return [box, width] as const;
}
