/** The loss by height: of the model that a quorum has signed, and of this node's own training. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Card, Empty } from "./card";
import { curveOf, curveWords, type Curve } from "./curve";
import type { RoundRecord } from "./facts";
import { useScheme } from "./scheme";
import type { Walk } from "./walks";
import { nats } from "./words";

const HEIGHT_PX = 240;
const HEIGHT_STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((ten) => [ten, 2 * ten, 5 * ten]);

export function LossCard(
  { rounds, walks }: { rounds: readonly RoundRecord[]; walks: readonly Walk[] },
) {
  // Each event of a round makes other walks, and few of them another curve to be drawn.
  const own = walks.map(({ height, ownLoss }) => `${height} ${ownLoss}`).join();
  const curve = useMemo(() => curveOf(rounds, walks), [rounds, own]);
  const isEmpty = !curve.heldOut.some((loss) => loss !== null);
  const hasOwn = curve.own.some((loss) => loss !== null);
  return (
    <Card id="loss" title="Loss" aside="nats a token, by height; lower is better">
      {isEmpty
        ? <Empty>The curve begins with the loss of the first weights, and gets a point with each
          certified checkpoint.</Empty>
        : <Plot curve={curve} hasOwn={hasOwn} />}
    </Card>
  );
}

function Plot({ curve, hasOwn }: { curve: Curve; hasOwn: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const scheme = useScheme();
  useEffect(() => {
    const box = place.current;
    if (box === null) return;
    const made = new uPlot(optionsFor(box, setAt), dataOf(curve), box);
    plot.current = made;
    const sizes = new ResizeObserver(() => {
      made.setSize({ width: box.clientWidth, height: HEIGHT_PX });
    });
    sizes.observe(box);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [scheme]);
  useEffect(() => plot.current?.setData(dataOf(curve)), [curve]);
  const shown = at ?? curve.heights.length - 1;
  const own = curve.own[shown] ?? null;
  return (
    <figure>
      <div class="plot" ref={place} role="img" aria-label={curveWords(curve)} />
      <figcaption>
        <span class="key held-out">held-out {nats(curve.heldOut[shown] ?? null)}</span>
        {hasOwn && <span class="key own">own training {nats(own)}</span>}
        <span class="figure">height {curve.heights[shown]}</span>
      </figcaption>
    </figure>
  );
}

function dataOf({ heights, heldOut, own }: Curve): uPlot.AlignedData {
  return [heights, heldOut, own];
}

function optionsFor(box: HTMLElement, onPoint: (at: number | null) => void): uPlot.Options {
  const style = getComputedStyle(box);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = {
    stroke: colour("--plot-quiet"), font: "12px system-ui, sans-serif",
    grid: { stroke: colour("--plot-line"), width: 1 }, ticks: { show: false },
  };
  return {
    width: box.clientWidth, height: HEIGHT_PX, padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 30, incrs: HEIGHT_STEPS },
      { ...axis, size: 48 },
    ],
    series: [
      {},
      {
        label: "held-out", stroke: colour("--plot-accent"), width: 2, spanGaps: true,
        points: { size: 6 },
      },
      {
        label: "own training", stroke: colour("--plot-quiet"), width: 1.5, dash: [4, 4],
        spanGaps: true, points: { size: 4 },
      },
    ],
    hooks: { setCursor: [(made) => onPoint(made.cursor.idx ?? null)] },
  };
}
