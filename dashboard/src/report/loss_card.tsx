/** How the loss went, of all nodes and of each. */

import { useMemo } from "preact/hooks";
import { Card, Empty } from "../card";
import { HeatMap } from "../drawings/heat_map";
import { Lines } from "../drawings/lines";
import { seconds } from "../words";
import { curvesOf, heatOf, wordsOf } from "./losses";
import type { Story } from "./story";

const shown = (ms: number): string => seconds(ms / 1_000);

export function LossCard({ story: { lanes, endMs } }: { story: Story }) {
  const lines = useMemo(() => curvesOf(lanes, endMs), [lanes, endMs]);
  const heat = useMemo(() => heatOf(lanes), [lanes]);
  return (
    <Card id="loss" title="Held-out loss" aside="nats a token, over virtual time; lower is better">
      {heat === null ? <Empty>Nobody measured a loss in this run.</Empty>
        : (
          <>
            <Lines
              lines={lines} words={wordsOf(lines)} axis="Time" shownX={shown}
              shownY={(nats) => nats.toFixed(2)}
            />
            <h3>Each node</h3>
            <HeatMap {...heat} />
          </>
        )}
    </Card>
  );
}
